/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "coll.h"

/* The bytes that each rank sends or receives at least, divided by those of algbw: what nccl-tests multiplies by. */
static double bus_factor(const coll_row_t *row)
{
    double n = row->ranks;
    switch (row->kind) {
    case COLL_ALLREDUCE:
    case COLL_LATENCY: return 2 * (n - 1) / n;
    case COLL_REDUCE:
    case COLL_BROADCAST:
    case COLL_SENDRECV: return 1;
    default: return (n - 1) / n;
    }
}

static int reduces(coll_kind_t kind)
{
    return kind == COLL_ALLREDUCE || kind == COLL_REDUCE || kind == COLL_REDUCE_SCATTER ||
           kind == COLL_LATENCY;
}

void coll_row_header(void)
{
    printf("%-14s %10s %10s %5s %5s %5s %-9s %-7s %-8s %11s %11s %9s %9s %11s %7s %6s\n",
           "collective", "size", "count", "type", "redop", "ranks", "transport", "buffers", "impl",
           "time us", "p99 us", "algbw", "busbw", "limit us", "/ limit", "wrong");
    fflush(stdout);
}

static void print_columns(const coll_row_t *row, double algbw, double busbw)
{
    char limit[32] = "-", share[32] = "-";
    if (row->limit_us > 0) {
        snprintf(limit, sizeof limit, "%.2f", row->limit_us);
        snprintf(share, sizeof share, "%.3f", row->limit_us / row->p50_us);
    }
    printf(
        "%-14s %10llu %10llu %5s %5s %5u %-9s %-7s %-8s %11.2f %11.2f %9.3f %9.3f %11s %7s %6llu",
        coll_kind_names[row->kind], (unsigned long long)row->bytes, (unsigned long long)row->count,
        coll_dtype_names[row->dtype], reduces(row->kind) ? coll_redop_names[row->redop] : "none",
        row->ranks, row->transport, coll_buffers_names[row->buffers], row->impl, row->p50_us,
        row->p99_us, algbw, busbw, limit, share, (unsigned long long)row->wrong);
}

static void print_json(const coll_row_t *row, double algbw, double busbw)
{
    char limit[32] = "null";
    if (row->limit_us > 0) snprintf(limit, sizeof limit, "%.6g", row->limit_us);
    printf("\t{\"collective\": \"%s\", \"bytes\": %llu, \"count\": %llu, \"dtype\": \"%s\", "
           "\"redop\": \"%s\", \"ranks\": %u, \"transport\": \"%s\", \"buffers\": \"%s\", "
           "\"impl\": \"%s\", \"p50_us\": %.6g, \"p99_us\": %.6g, \"algbw_gbps\": %.6g, "
           "\"busbw_gbps\": %.6g, \"limit_us\": %s, \"wrong\": %llu}\n",
           coll_kind_names[row->kind], (unsigned long long)row->bytes,
           (unsigned long long)row->count, coll_dtype_names[row->dtype],
           reduces(row->kind) ? coll_redop_names[row->redop] : "none", row->ranks, row->transport,
           coll_buffers_names[row->buffers], row->impl, row->p50_us, row->p99_us, algbw, busbw,
           limit, (unsigned long long)row->wrong);
}

void coll_row_print(const coll_row_t *row)
{
    double algbw = (double)row->bytes / row->p50_us / 1e3, busbw = algbw * bus_factor(row);
    print_columns(row, algbw, busbw);
    print_json(row, algbw, busbw);
    fflush(stdout);
}
