/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "ps.h"

void ps_row_header(void)
{
    printf("%-9s %7s %10s %-9s %-7s %3s %3s %9s %9s %7s %9s %7s %9s %11s %11s %10s %11s %8s\n",
           "op", "tables", "bytes", "transport", "buffers", "W", "S", "GB/s", "limit", "ratio",
           "raw", "/ raw", "total", "p50 us", "p99 us", "ops/s", "limit us", "ping us");
    fflush(stdout);
}

/* A number, or `none` where nothing was measured. */
static const char *number(char text[32], const char *format, double value, const char *none)
{
    if (value > 0)
        snprintf(text, 32, format, value);
    else
        snprintf(text, 32, "%s", none);
    return text;
}

static void print_columns(const ps_row_t *row, double gbps, double limit, double raw, double total)
{
    char a[32], b[32], c[32], d[32];
    printf("%-9s %7llu %10llu %-9s %-7s %3u %3u %9.3f %9.3f %7.3f %9s %7s %9s %11.2f %11.2f %10.0f "
           "%11.3f %8s",
           ps_op_names[row->op], (unsigned long long)row->tables, (unsigned long long)row->bytes,
           ps_transport_names[row->transport], ps_buffers_names[row->buffers], row->workers,
           row->servers, gbps, limit, gbps / limit, number(a, "%.3f", raw, "-"),
           number(b, "%.3f", raw > 0 ? gbps / raw : 0, "-"), number(c, "%.3f", total, "-"),
           row->p50_us, row->p99_us, row->ops_per_s, row->limit_us,
           number(d, "%.3f", row->raw_ping_us, "-"));
}

static void print_json(const ps_row_t *row, double gbps, double limit, double raw, double total)
{
    char a[32], b[32], c[32], d[32];
    printf("\t{\"op\": \"%s\", \"bytes\": %llu, \"transport\": \"%s\", \"buffers\": \"%s\", "
           "\"workers\": %u, \"servers\": %u, \"gbps\": %.6g, \"limit_gbps\": %.6g, "
           "\"ratio\": %.6g, \"p50_us\": %.6g, \"p99_us\": %.6g, \"ops_per_s\": %.6g, "
           "\"limit_us\": %.6g, \"tables\": %llu, \"raw_gbps\": %s, \"raw_ratio\": %s, "
           "\"total_gbps\": %s, \"raw_ping_us\": %s}\n",
           ps_op_names[row->op], (unsigned long long)row->bytes, ps_transport_names[row->transport],
           ps_buffers_names[row->buffers], row->workers, row->servers, gbps, limit, gbps / limit,
           row->p50_us, row->p99_us, row->ops_per_s, row->limit_us, (unsigned long long)row->tables,
           number(a, "%.6g", raw, "null"), number(b, "%.6g", raw > 0 ? gbps / raw : 0, "null"),
           number(c, "%.6g", total, "null"), number(d, "%.6g", row->raw_ping_us, "null"));
}

void ps_row_print(const ps_row_t *row)
{
    double bytes = (double)row->bytes, gbps = bytes * row->ops_per_s / 1e9;
    double limit = bytes / row->limit_us / 1e3, total = bytes * row->all_ops_per_s / 1e9;
    double raw = row->raw_us > 0 ? bytes / row->raw_us / 1e3 : 0;
    print_columns(row, gbps, limit, raw, total);
    print_json(row, gbps, limit, raw, total);
    fflush(stdout);
}
