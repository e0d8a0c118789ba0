/* two_way_times: reflection times of a layered earth at vertical incidence.
 *
 *     two_way_times MODEL_FILE TIMES_FILE          one model
 *     two_way_times --batch MODELS_FILE TIMES_FILE many models, one a row
 *     two_way_times --serve                        one model a line of standard input, until it ends
 *
 * MODEL_FILE is text. Blank lines and lines that start with '#' are skipped. The first line holds the number of
 * layers L; each of the L lines that follow holds `depth velocity`, from the shallowest layer to the deepest:
 *     depth     of the reflector at the base of the layer, below the surface, positive downwards, in m
 *     velocity  in the layer, positive, in m s-1
 * TIMES_FILE is text: a comment line, then L lines with the two-way travel time to each reflector in s.
 *
 * MODELS_FILE is CSV: a line of names, `depth[1],...,depth[L],velocity[1],...,velocity[L]`, then a line for each model.
 * TIMES_FILE is then CSV too: a comment line, then a line with L times for each model, or `nan` for one with a velocity
 * that is not positive.
 *
 * --serve reads `{"id": 7, "inputs": {"depth": [...], "velocity": [...]}}` and writes
 * `{"id": 7, "outputs": {"time": [...]}}` or `{"id": 7, "error": "..."}`, each on one line.
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
#include <limits.h>
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

/* ---- lines and lists of any length ---- */

struct text {
    char *data;
    size_t capacity;
};

struct list {
    double *data;
    size_t count, capacity;
};

static int room_of(size_t size)
{
    return size < INT_MAX ? (int)size : INT_MAX;
}

/* Read a line without its end; return 1, 0 at the end of the file, or -1 without memory. */
static int read_line(FILE *file, struct text *line)
{
    size_t length = 0;
    for (;;) {
        if (line->capacity - length < 2) {
            size_t capacity = line->capacity < LINE_SIZE ? LINE_SIZE : 2 * line->capacity;
            char *data = realloc(line->data, capacity);
            if (data == NULL)
                return -1;
            line->data = data;
            line->capacity = capacity;
        }
        if (fgets(line->data + length, room_of(line->capacity - length), file) == NULL)
            return length > 0;
        length += strlen(line->data + length);
        if (length > 0 && line->data[length - 1] == '\n') {
            line->data[length - 1] = '\0';
            return 1;
        }
    }
}

static int append(struct list *list, double value)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        double *data = realloc(list->data, capacity * sizeof *data);
        if (data == NULL)
            return 0;
        list->data = data;
        list->capacity = capacity;
    }
    list->data[list->count++] = value;
    return 1;
}

/* The number, from 1, of the first layer whose velocity is not positive; 0 if all are. */
static size_t bad_velocity(size_t layers, const double *velocity)
{
    for (size_t p = 0; p < layers; p++)
        if (!(velocity[p] > 0.0))
            return p + 1;
    return 0;
}

/* ---- many models in one file ---- */

/* How many layers the names `depth...,velocity...` speak of; 0 if they are other names. */
static size_t layers_of(const char *names)
{
    size_t depths = 0, velocities = 0;
    for (const char *name = names; name != NULL; name = strchr(name, ',')) {
        name += *name == ',';
        if (strncmp(name, "depth", 5) == 0 && velocities == 0)
            depths++;
        else if (strncmp(name, "velocity", 8) == 0)
            velocities++;
        else
            return 0;
    }
    return depths == velocities ? depths : 0;
}

/* Read exactly `count` finite numbers between commas; return 0 if they are not there. */
static int parse_row(char *text, size_t count, double *values)
{
    for (size_t i = 0; i < count; i++) {
        char *end;
        values[i] = strtod(text, &end);
        if (end == text || !isfinite(values[i]))
            return 0;
        text = end;
        if (i + 1 < count && *text++ != ',')
            return 0;
    }
    return is_blank(text);
}

static void write_row(FILE *file, size_t layers, const double *model, double *times)
{
    if (bad_velocity(layers, model + layers) != 0) {
        fprintf(file, "nan\n");
        return;
    }
    two_way_times(layers, model, model + layers, times);
    for (size_t p = 0; p < layers; p++)
        fprintf(file, "%.17g%c", times[p], p + 1 < layers ? ',' : '\n');
}

static enum status run_rows(FILE *in, const char *path, FILE *out, struct text *line)
{
    size_t layers;
    long number = 1;
    double *model;
    enum status status = OK;
    int found = read_line(in, line);
    layers = found > 0 ? layers_of(line->data) : 0;
    if (layers == 0) {
        fprintf(stderr, "two_way_times: '%s' must start with the names of its columns, depth[1],...,velocity[1],...\n",
                path);
        return found < 0 ? NO_MEMORY : MALFORMED;
    }
    model = calloc(3 * layers, sizeof *model);
    fprintf(out, "# two-way travel time to each reflector (s)\n");
    while (model != NULL && status == OK && (found = read_line(in, line)) > 0) {
        number++;
        if (is_blank(line->data))
            continue;
        if (parse_row(line->data, 2 * layers, model)) {
            write_row(out, layers, model, model + 2 * layers);
        } else {
            fprintf(stderr, "two_way_times: line %ld of '%s' must hold %zu numbers between commas.\n", number, path,
                    2 * layers);
            status = MALFORMED;
        }
    }
    if (model == NULL || found < 0) {
        fprintf(stderr, "two_way_times: there is not enough memory for '%s'.\n", path);
        status = NO_MEMORY;
    }
    free(model);
    return status;
}

static enum status run_batch(const char *models_path, const char *times_path)
{
    struct text line = {NULL, 0};
    enum status status;
    int failed;
    FILE *out, *in = fopen(models_path, "r");
    if (in == NULL) {
        fprintf(stderr, "two_way_times: the models file '%s' cannot be read: %s.\n", models_path, strerror(errno));
        return UNREADABLE;
    }
    out = fopen(times_path, "w");
    if (out == NULL) {
        fprintf(stderr, "two_way_times: the times file '%s' cannot be written: %s.\n", times_path, strerror(errno));
        fclose(in);
        return UNWRITABLE;
    }
    status = run_rows(in, models_path, out, &line);
    free(line.data);
    fclose(in);
    failed = ferror(out);
    if ((fclose(out) != 0 || failed) && status == OK) {
        fprintf(stderr, "two_way_times: the times file '%s' was not written in full.\n", times_path);
        return UNWRITABLE;
    }
    return status;
}

/* ---- one model a line ---- */

struct request {
    long id;
    int has_id;
    struct list depth, velocity;
};

/* Move the cursor behind a character and the white space about it; return 0 if another one stands there. */
static int accept(char **cursor, char expected)
{
    while (isspace((unsigned char)**cursor))
        ++*cursor;
    if (**cursor != expected)
        return 0;
    ++*cursor;
    while (isspace((unsigned char)**cursor))
        ++*cursor;
    return 1;
}

/* Move the cursor behind `"name":`; return 0 if something else stands there. */
static int accept_key(char **cursor, const char *name)
{
    size_t length = strlen(name);
    char *start = *cursor;
    if (accept(cursor, '"') && strncmp(*cursor, name, length) == 0) {
        *cursor += length;
        if (**cursor == '"' && accept(cursor, '"') && accept(cursor, ':'))
            return 1;
    }
    *cursor = start;
    return 0;
}

static int parse_list(char **cursor, struct list *list)
{
    list->count = 0;
    if (!accept(cursor, '['))
        return 0;
    do {
        char *end;
        double value = strtod(*cursor, &end);
        if (end == *cursor || !isfinite(value) || !append(list, value))
            return 0;
        *cursor = end;
    } while (accept(cursor, ','));
    return accept(cursor, ']');
}

static int parse_inputs(char **cursor, struct request *request)
{
    if (!accept(cursor, '{'))
        return 0;
    do {
        if (accept_key(cursor, "depth") ? !parse_list(cursor, &request->depth)
                                        : !accept_key(cursor, "velocity") || !parse_list(cursor, &request->velocity))
            return 0;
    } while (accept(cursor, ','));
    return accept(cursor, '}');
}

static int parse_request(char *cursor, struct request *request)
{
    request->has_id = 0;
    request->depth.count = request->velocity.count = 0;
    if (!accept(&cursor, '{'))
        return 0;
    do {
        if (accept_key(&cursor, "id")) {
            char *end;
            request->id = strtol(cursor, &end, 10);
            if (end == cursor)
                return 0;
            request->has_id = 1;
            cursor = end;
        } else if (!accept_key(&cursor, "inputs") || !parse_inputs(&cursor, request)) {
            return 0;
        }
    } while (accept(&cursor, ','));
    return accept(&cursor, '}') && *cursor == '\0' && request->has_id;
}

static void begin_answer(const struct request *request)
{
    if (request->has_id)
        printf("{\"id\": %ld, ", request->id);
    else
        printf("{\"id\": null, ");
}

static void answer(const struct request *request, double *times)
{
    size_t layers = request->depth.count;
    size_t bad = bad_velocity(layers, request->velocity.data);
    begin_answer(request);
    if (bad != 0) {
        printf("\"error\": \"the velocity of layer %zu must be positive, but it is %g m s-1\"}\n", bad,
               request->velocity.data[bad - 1]);
        return;
    }
    two_way_times(layers, request->depth.data, request->velocity.data, times);
    printf("\"outputs\": {\"time\": [");
    for (size_t p = 0; p < layers; p++) {
        if (isfinite(times[p]))
            printf("%.17g", times[p]);
        else
            printf("null");
        if (p + 1 < layers)
            printf(", ");
    }
    printf("]}}\n");
}

static enum status serve(void)
{
    struct text line = {NULL, 0};
    struct request request = {0, 0, {NULL, 0, 0}, {NULL, 0, 0}};
    struct list times = {NULL, 0, 0};
    int found;
    while ((found = read_line(stdin, &line)) > 0) {
        int sound = parse_request(line.data, &request);
        times.count = 0;
        while (sound && times.count < request.depth.count)
            sound = append(&times, 0.0);
        if (sound && request.depth.count == request.velocity.count && times.count > 0) {
            answer(&request, times.data);
        } else {
            begin_answer(&request);
            printf("\"error\": \"a request must hold an id, and inputs depth and velocity of the same length\"}\n");
        }
        if (fflush(stdout) != 0)
            break;
    }
    free(line.data);
    free(request.depth.data);
    free(request.velocity.data);
    free(times.data);
    if (found > 0 || found < 0)
        fprintf(stderr, "two_way_times: %s.\n", found < 0 ? "there is not enough memory" : "nobody reads the answers");
    return found > 0 ? UNWRITABLE : found < 0 ? NO_MEMORY : OK;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--serve") == 0)
        return serve();
    if (argc == 4 && strcmp(argv[1], "--batch") == 0)
        return run_batch(argv[2], argv[3]);
    if (argc != 3) {
        fprintf(stderr, "usage: two_way_times MODEL_FILE TIMES_FILE | --batch MODELS_FILE TIMES_FILE | --serve\n");
        return USAGE;
    }
    return run(argv[1], argv[2]);
}
