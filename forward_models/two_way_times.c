/* two_way_times: reflection times of a layered earth at vertical incidence.
 *
 *     two_way_times MODEL_FILE TIMES_FILE
 *
 * MODEL_FILE is text. Blank lines and lines that start with '#' are skipped. The first line holds the number of
 * layers L; each of the L lines that follow holds `depth velocity`, from the shallowest layer to the deepest:
 *     depth     of the reflector at the base of the layer, below the surface, positive downwards, in m
 *     velocity  in the layer, positive, in m s-1
 * TIMES_FILE is text: a comment line, then L lines with the two-way travel time to each reflector in s.
 *
 * Exit codes, each but the first with one sentence on stderr:
 *     0  the times are written
 *     1  wrong number of arguments
 *     2  the model file cannot be read
 *     3  the model file is malformed: not a number, or not as many layers as it announces
 *     4  a velocity is not positive
 *     5  the times file cannot be written
 *     6  not enough memory
 *
 * Build: cc -std=c99 -O2 -o two_way_times two_way_times.c
 */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status { OK, USAGE, UNREADABLE, MALFORMED, BAD_VELOCITY, UNWRITABLE, NO_MEMORY };

enum { LINE_SIZE = 1024 };

struct model {
    size_t layers;
    double *depth;    /* m, below the surface */
    double *velocity; /* m s-1 */
};

struct reader {
    FILE *file;
    const char *path;
    long line_number;
    char line[LINE_SIZE];
};

/* ---- physics ---- */

static void two_way_times(size_t layers, const double *depth, const double *velocity, double *times)
{
    double above = 0.0, time = 0.0;
    for (size_t p = 0; p < layers; p++) {
        time += 2.0 * (depth[p] - above) / velocity[p];
        above = depth[p];
        times[p] = time;
    }
}

/* ---- models ---- */

static enum status allocate_model(struct model *model, size_t layers)
{
    model->layers = layers;
    model->depth = calloc(layers, sizeof *model->depth);
    model->velocity = calloc(layers, sizeof *model->velocity);
    if (model->depth == NULL || model->velocity == NULL) {
        fprintf(stderr, "two_way_times: there is not enough memory for %zu layers.\n", layers);
        return NO_MEMORY;
    }
    return OK;
}

static void free_model(struct model *model)
{
    free(model->depth);
    free(model->velocity);
}

/* ---- parsing ---- */

static int is_blank(const char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    return *text == '\0';
}

/* Discard the rest of a line that did not fit; return how many characters that were not white space it held. */
static long discard_line(FILE *file)
{
    long discarded = 0;
    int c;
    while ((c = getc(file)) != EOF && c != '\n')
        discarded += !isspace(c);
    return discarded;
}

/* Read the next line that is neither blank nor a comment; return 0 at the end of the file, -1 if it is too long. */
static int next_line(struct reader *reader)
{
    while (fgets(reader->line, LINE_SIZE, reader->file) != NULL) {
        long discarded = 0;
        reader->line_number++;
        if (strchr(reader->line, '\n') == NULL)
            discarded = discard_line(reader->file);
        if (reader->line[0] == '#')
            continue;
        if (discarded > 0)
            return -1;
        if (!is_blank(reader->line))
            return 1;
    }
    return 0;
}

/* Read one finite number and move the cursor behind it; return 0 if there is none. */
static int parse_number(char **cursor, double *value)
{
    char *end;
    *value = strtod(*cursor, &end);
    if (end == *cursor || !(isspace((unsigned char)*end) || *end == '\0') || !isfinite(*value))
        return 0;
    *cursor = end;
    return 1;
}

static enum status malformed(const struct reader *reader, const char *expected)
{
    fprintf(stderr, "two_way_times: line %ld of '%s' must hold %s.\n", reader->line_number, reader->path, expected);
    return MALFORMED;
}

static enum status parse_count(struct reader *reader, size_t *layers)
{
    char *end;
    long count;
    int found = next_line(reader);
    if (found == 0) {
        fprintf(stderr, "two_way_times: '%s' is empty; it must start with the number of layers.\n", reader->path);
        return MALFORMED;
    }
    errno = 0;
    count = strtol(reader->line, &end, 10);
    if (found < 0 || end == reader->line || !is_blank(end) || errno != 0 || count < 1)
        return malformed(reader, "the number of layers, a positive whole number");
    *layers = (size_t)count;
    return OK;
}

static enum status parse_layer(struct reader *reader, double *depth, double *velocity)
{
    char *cursor = reader->line;
    if (!parse_number(&cursor, depth) || !parse_number(&cursor, velocity) || !is_blank(cursor))
        return malformed(reader, "a depth in m and a velocity in m s-1, and nothing else");
    if (!(*velocity > 0.0)) {
        fprintf(stderr, "two_way_times: the velocity on line %ld of '%s' must be positive, but it is %g m s-1.\n",
                reader->line_number, reader->path, *velocity);
        return BAD_VELOCITY;
    }
    return OK;
}

static enum status parse_model(struct reader *reader, struct model *model)
{
    size_t layers;
    int found;
    enum status status = parse_count(reader, &layers);
    if (status == OK)
        status = allocate_model(model, layers);
    for (size_t p = 0; status == OK && p < layers; p++) {
        found = next_line(reader);
        if (found == 0) {
            fprintf(stderr, "two_way_times: '%s' announces %zu layers, but it holds %zu.\n", reader->path, layers, p);
            return MALFORMED;
        }
        if (found < 0)
            return malformed(reader, "a depth in m and a velocity in m s-1, and nothing else");
        status = parse_layer(reader, &model->depth[p], &model->velocity[p]);
    }
    if (status == OK && next_line(reader) != 0) {
        fprintf(stderr, "two_way_times: '%s' announces %zu layers, but it holds more.\n", reader->path, layers);
        return MALFORMED;
    }
    return status;
}

/* ---- files ---- */

static enum status read_model(const char *path, struct model *model)
{
    struct reader reader = {NULL, path, 0, ""};
    enum status status;
    reader.file = fopen(path, "r");
    if (reader.file == NULL) {
        fprintf(stderr, "two_way_times: the model file '%s' cannot be read: %s.\n", path, strerror(errno));
        return UNREADABLE;
    }
    /* A directory opens but does not read; found out here, before the parser takes it for an empty file. */
    if (getc(reader.file) == EOF && ferror(reader.file)) {
        fprintf(stderr, "two_way_times: the model file '%s' cannot be read: %s.\n", path, strerror(errno));
        fclose(reader.file);
        return UNREADABLE;
    }
    rewind(reader.file);
    status = parse_model(&reader, model);
    fclose(reader.file);
    return status;
}

static enum status write_times(const char *path, size_t layers, const double *times)
{
    int failed;
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        fprintf(stderr, "two_way_times: the times file '%s' cannot be written: %s.\n", path, strerror(errno));
        return UNWRITABLE;
    }
    fprintf(file, "# two-way travel time to each reflector (s)\n");
    for (size_t p = 0; p < layers; p++)
        fprintf(file, "%.17g\n", times[p]);
    failed = ferror(file);
    if (fclose(file) != 0 || failed) {
        fprintf(stderr, "two_way_times: the times file '%s' was not written in full.\n", path);
        return UNWRITABLE;
    }
    return OK;
}

static enum status run(const char *model_path, const char *times_path)
{
    struct model model = {0, NULL, NULL};
    enum status status = read_model(model_path, &model);
    if (status == OK) {
        double *times = calloc(model.layers, sizeof *times);
        if (times == NULL) {
            fprintf(stderr, "two_way_times: there is not enough memory for %zu layers.\n", model.layers);
            status = NO_MEMORY;
        } else {
            two_way_times(model.layers, model.depth, model.velocity, times);
            status = write_times(times_path, model.layers, times);
        }
        free(times);
    }
    free_model(&model);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: two_way_times MODEL_FILE TIMES_FILE\n");
        return USAGE;
    }
    return run(argv[1], argv[2]);
}
