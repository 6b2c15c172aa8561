/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/sshfiles.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/util.h"
#include "launcher/env.h"
#include "launcher/program.h"

#define LIBRARY "libpsrt.so.0"

/* ---- the files ------------------------------------------------------------------------------- */

static psrt_status_t read_file(psrti_sshfile_t *file)
{
    FILE *in = fopen(file->path, "re");
    long size = -1;
    if (in && !fseek(in, 0, SEEK_END)) size = ftell(in);
    if (size > 0) {
        rewind(in);
        file->size = (size_t)size;
        file->data = psrti_xrealloc(NULL, file->size);
        if (fread(file->data, 1, file->size, in) != file->size) size = -1;
    }
    if (in) fclose(in);
    if (size <= 0) return psrti_fail(PSRT_ERR_NOT_FOUND, "%s: %s", file->path, strerror(errno));
    return PSRT_OK;
}

static psrt_status_t add(psrti_sshfiles_t *files, const char *path, const char *name)
{
    psrti_sshfile_t *file = &files->files[files->count++];
    uint8_t hash[crypto_hash_sha256_BYTES];
    *file = (psrti_sshfile_t){ .path = psrti_xstrdup(path), .name = name };
    psrt_status_t st = read_file(file);
    if (st) return st;
    crypto_hash_sha256(hash, file->data, file->size);
    sodium_bin2hex(file->hash, sizeof file->hash, hash, sizeof hash);
    return PSRT_OK;
}

/* Where psrtd looks for it, as built and as installed; one of the system is not ours to copy. */
static psrt_status_t add_library(psrti_sshfiles_t *files, const char *psrtd)
{
    static const char *const names[] = { "lib/" LIBRARY, PSRTI_LIBDIR "/" LIBRARY };
    char copy[PATH_MAX], path[PATH_MAX + 64];
    snprintf(copy, sizeof copy, "%s", psrtd);
    const char *dir = dirname(copy);
    for (size_t i = 0; i < PSRTI_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/../%s", dir, names[i]);
        if (!access(path, R_OK)) return add(files, path, names[i]);
    }
    return PSRT_OK;
}

psrt_status_t psrti_sshfiles_load(psrti_sshfiles_t *files, const char *psrtd)
{
    char agent[PATH_MAX];
    *files = (psrti_sshfiles_t){ 0 };
    psrt_status_t st = psrti_find_program("psrt-agent", "PSRT_LAUNCH_AGENT",
                                          "it runs the tasks of other hosts", agent);
    if (!st && sodium_init() < 0) st = psrti_fail(PSRT_ERR_INTERNAL, "libsodium does not start");
    if (!st) st = add(files, agent, "bin/psrt-agent");
    if (!st && psrtd) st = add(files, psrtd, "bin/psrtd");
    if (!st && psrtd) st = add_library(files, psrtd);
    if (st) psrti_sshfiles_clear(files);
    return st;
}

void psrti_sshfiles_clear(psrti_sshfiles_t *files)
{
    for (size_t i = 0; i < files->count; i++) {
        free(files->files[i].path);
        free(files->files[i].data);
    }
    files->count = 0;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Needs no quotes in any shell. */
static int is_plain(const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_./+-";
    return path[0] == '/' && !path[strspn(path, letters)];
}

static int all_plain(const psrti_sshfiles_t *files)
{
    for (size_t i = 0; i < files->count; i++)
        if (!is_plain(files->files[i].path)) return 0;
    return 1;
}

/* One hash for them together names their directory. */
static void tree_hash(const psrti_sshfiles_t *files, char name[33])
{
    crypto_generichash_state state;
    uint8_t hash[16];
    crypto_generichash_init(&state, NULL, 0, sizeof hash);
    for (size_t i = 0; i < files->count; i++)
        crypto_generichash_update(&state, (const uint8_t *)files->files[i].hash, 64);
    crypto_generichash_final(&state, hash, sizeof hash);
    sodium_bin2hex(name, 33, hash, sizeof hash);
}

/* As they are here, at the same place: a shared file system, or the same installation. */
static void put_own(FILE *out, const psrti_sshfiles_t *files)
{
    if (!all_plain(files)) {
        fputs("if false; then :; ", out);
        return;
    }
    fputs("if printf \"%s  %s\\n\"", out);
    for (size_t i = 0; i < files->count; i++)
        fprintf(out, " %s %s", files->files[i].hash, files->files[i].path);
    fprintf(out, " | sum; then a=%s; p=; ", files->files[0].path);
}

static void put_functions(FILE *out, const psrti_sshfiles_t *files)
{
    fputs("u=$(umask); umask 077; "
          "say() { printf \"\\n%s\\n\" \"" PSRTI_SSH_WORD "$1\"; }; "
          "sum() { sha256sum -c --status 2>/dev/null; }; "
          "check() { printf \"%s  %s\\n\"",
          out);
    for (size_t i = 0; i < files->count; i++)
        fprintf(out, " %s \"$1/%s\"", files->files[i].hash, files->files[i].name);
    fputs(" | sum; }; "
          "command -v sha256sum >/dev/null || { say \"error there is no sha256sum\"; exit 1; }; ",
          out);
}

/* Beside its place, then moved there: others may do the same at this moment, on other hosts too. */
static void put_copy(FILE *out, const psrti_sshfiles_t *files)
{
    fprintf(out,
            "n=\"$c.$$.$(uname -n)\"; mkdir -p \"$n/bin\" \"$n/lib\" \"$n/" PSRTI_LIBDIR "\" || "
            "{ say \"error $n cannot be made\"; exit 1; }; say \"need $(uname -m)\"; ");
    for (size_t i = 0; i < files->count; i++)
        fprintf(out, "head -c %zu >\"$n/%s\"; ", files->files[i].size, files->files[i].name);
    fputs("chmod 700 \"$n\"/bin/*; "
          "check \"$n\" || { rm -rf \"$n\"; say \"error psrt-agent could not be copied to $n\"; "
          "exit 1; }; "
          "mv -T \"$n\" \"$c\" 2>/dev/null || { check \"$c\" || { rm -rf \"$c\"; "
          "mv -T \"$n\" \"$c\"; }; rm -rf \"$n\"; }; ",
          out);
}

static FILE *open_text(char **text, size_t *size)
{
    FILE *out = open_memstream(text, size);
    if (out) return out;
    psrti_out_of_memory();
}

char *psrti_sshfiles_command(const psrti_sshfiles_t *files)
{
    char *text = NULL, tree[33];
    size_t size;
    FILE *out = open_text(&text, &size);
    tree_hash(files, tree);
    fputs("exec /bin/sh -c '", out);
    put_functions(out, files);
    put_own(out, files);
    fprintf(out, "else c=\"${XDG_CACHE_HOME:-$HOME/.cache}/psrt/%s\"; check \"$c\" || { ", tree);
    put_copy(out, files);
    fprintf(out, "}; a=\"$c/bin/psrt-agent\"; p=%s; fi; ",
            files->count > 1 ? "\"$c/bin/psrtd\"" : "");
    fputs("umask $u; say \"run $p\"; exec \"$a\"'", out);
    if (fclose(out)) psrti_out_of_memory();
    return text;
}
