/* A simulator that fails in every way that simulators fail in, decided by its input: x in, two numbers out.
   The whole part of x, modulo 16, says how it ends; 0 and all that are not named end well. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void answer(double x, const char *ending) {
    FILE *file = fopen("times.txt", "w");
    fprintf(file, "%.17g %.17g%s", 2.0 * x, x * x, ending);
    fclose(file);
}

/* A child that outlives us; it may leave our process group, or close all files that it has inherited. */
static void leave_a_child(int in_a_group_of_its_own, int without_files) {
    if (fork() == 0) {
        if (in_a_group_of_its_own) setsid();
        for (int i = 0; without_files && i < 64; i++) close(i);
        for (;;) pause();
    }
}

/* A child of nobody, in a session of its own, without files, and with nothing in its environment to know it by. */
static void leave_a_daemon(void) {
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() == 0) {
            if (chdir("/") != 0) _exit(1);
            for (int i = 0; i < 64; i++) close(i);
            for (char **variable = environ; *variable != NULL; variable++) memset(*variable, 0, strlen(*variable));
            for (;;) pause();
        }
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

int main(int count, char **arguments) {
    double x = count > 1 ? atof(arguments[1]) : 0.0;
    FILE *started = fopen(arguments[2], "a");
    fprintf(started, "%.17g\n", x);
    fclose(started);
    switch ((int)floor(x) % 16) {
    case 1: return 3;
    case 2: raise(SIGSEGV); break;
    case 3: for (;;) pause();
    case 4: leave_a_child(1, 1); for (;;) pause();
    case 5: answer(x, ""); truncate("times.txt", 10); return 0;
    case 6: { FILE *file = fopen("times.txt", "w"); fprintf(file, "nan %.17g\n", x); fclose(file); return 0; }
    case 7: return 0;
    case 8: leave_a_child(0, 0); answer(x, "\n"); return 0;
    case 9: leave_a_child(1, 0); answer(x, "\n"); return 0;
    case 10: {
        char flood[4096];
        memset(flood, 'x', sizeof flood);
        for (int i = 0; i < 512; i++) fwrite(flood, 1, sizeof flood, stderr);
        return 1;
    }
    case 11: leave_a_daemon(); answer(x, "\n"); return 0;
    case 12: unlink("standard_error.txt"); return mkfifo("standard_error.txt", 0600) == 0 ? 3 : 0;
    default: break;
    }
    answer(x, "\n");
    return 0;
}
