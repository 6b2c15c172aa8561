/* SPDX-License-Identifier: Apache-2.0 */
/* The runner of the ordinary builds: replays files, without a fuzzer.
 *
 *   fuzz_NAME PATH...      runs the target on each file, of folders on each in them, and on its own seeds;
 *                          those and files named valid-* must be accepted
 *   fuzz_NAME --write DIR  writes its seeds to DIR as valid-* and attack-* */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

static const char *write_to; /* NULL: replay */
static unsigned files, seeds, refused;

static void run(const char *name, const uint8_t *data, size_t size, int valid)
{
    uint8_t *exact = malloc(size ? size : 1); /* so that reads past the end are seen */
    FUZZ_ASSERT(exact);
    if (size) memcpy(exact, data, size);
    (void)fuzz_accepted();
    LLVMFuzzerTestOneInput(exact, size);
    if (!fuzz_accepted() && valid) {
        fprintf(stderr, "%s: is valid and was refused\n", name);
        refused++;
    }
    free(exact);
}

static void write_file(const char *name, const void *data, size_t size, int valid)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%s", write_to, valid ? "valid" : "attack", name);
    FILE *file = fopen(path, "we");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(2);
    }
}

static void on_seed(const char *name, const void *data, size_t size, int valid)
{
    seeds++;
    if (write_to)
        write_file(name, data, size, valid);
    else
        run(name, data, size, valid);
}

static void replay_file(const char *path, const char *name)
{
    static uint8_t data[1 << 20];
    FILE *file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(2);
    }
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    files++;
    run(path, data, size, strncmp(name, "valid-", 6) == 0);
}

static void replay(const char *path)
{
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) {
        const char *slash = strrchr(path, '/');
        replay_file(path, slash ? slash + 1 : path);
        return;
    }
    for (int i = 0; i < count; i++) {
        char inner[4096];
        snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') replay_file(inner, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    LLVMFuzzerInitialize(&argc, &argv);
    fuzz_on_seed = on_seed;
    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        write_to = argv[2];
        fuzz_seeds();
        return 0;
    }
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    fuzz_seeds();
    printf("%u files, %u seeds, %u refused\n", files, seeds, refused);
    return refused || !files || !seeds;
}
