/* SPDX-License-Identifier: Apache-2.0 */
/* Stands between the library's allocations and the C library's (ld --wrap) and books them on the role that
 * runs. What is freed goes off the books of the role that runs then: cores free what is theirs. */
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "scale.h"

static scale_role_t running;
static uint64_t booked[4];

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *text);
void __real_free(void *ptr);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *ptr, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
char *__wrap_strdup(const char *text);
void __wrap_free(void *ptr);

scale_role_t scale_account(scale_role_t role)
{
    scale_role_t before = running;
    running = role;
    return before;
}

uint64_t scale_allocated(scale_role_t role) { return booked[role]; }

static void *book(void *ptr)
{
    booked[running] += ptr ? malloc_usable_size(ptr) : 0;
    return ptr;
}

static void unbook(void *ptr) { booked[running] -= ptr ? malloc_usable_size(ptr) : 0; }

void *__wrap_malloc(size_t size) { return book(__real_malloc(size)); }
void *__wrap_calloc(size_t n, size_t size) { return book(__real_calloc(n, size)); }
char *__wrap_strdup(const char *text) { return book(__real_strdup(text)); }

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return book(__real_aligned_alloc(align, size));
}

void *__wrap_realloc(void *ptr, size_t size)
{
    unbook(ptr);
    return book(__real_realloc(ptr, size));
}

void __wrap_free(void *ptr)
{
    unbook(ptr);
    __real_free(ptr);
}
