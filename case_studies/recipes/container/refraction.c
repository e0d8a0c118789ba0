/* First arrivals of a refraction survey: reads thickness (m) and two velocities (m/s), writes six times (s). */
#include <math.h>
#include <stdio.h>

static const double OFFSETS[6] = {4.0, 8.0, 40.0, 60.0, 80.0, 100.0}; /* m */

int main(int argc, char **argv) {
    double thickness, soil, rock;
    FILE *in = argc == 3 ? fopen(argv[1], "r") : NULL, *out;
    if (!in || fscanf(in, "%lf %lf %lf", &thickness, &soil, &rock) != 3 || !(out = fopen(argv[2], "w"))) {
        fprintf(stderr, "usage: refraction MODEL TIMES\n");
        return 1;
    }
    if (rock <= soil) {
        fprintf(stderr, "the rock must be faster than the soil\n");
        return 1;
    }
    for (int k = 0; k < 6; k++) {
        double offset = OFFSETS[k], slowness = sqrt(1.0 / (soil * soil) - 1.0 / (rock * rock));
        fprintf(out, "%.9f\n", fmin(offset / soil, offset / rock + 2.0 * thickness * slowness));
    }
    return fclose(out) != 0;
}
