/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "ps.h"

void ps_row_header(void)
{
    printf("%-9s %7s %10s %-9s %-7s %3s %3s %9s %9s %7s %11s %11s %10s %11s\n", "op", "tables",
           "bytes", "transport", "buffers", "W", "S", "GB/s", "limit", "ratio", "p50 us", "p99 us",
           "ops/s", "limit us");
    fflush(stdout);
}

void ps_row_print(const ps_row_t *row)
{
    const char *op = ps_op_names[row->op], *transport = ps_transport_names[row->transport];
    const char *buffers = ps_buffers_names[row->buffers];
    unsigned long long bytes = row->bytes, tables = row->tables;
    double gbps = (double)row->bytes * row->ops_per_s / 1e9;
    double limit_gbps = (double)row->bytes / row->limit_us / 1e3;
    printf("%-9s %7llu %10llu %-9s %-7s %3u %3u %9.3f %9.3f %7.3f %11.2f %11.2f %10.0f %11.3f", op,
           tables, bytes, transport, buffers, row->workers, row->servers, gbps, limit_gbps,
           gbps / limit_gbps, row->p50_us, row->p99_us, row->ops_per_s, row->limit_us);
    printf("\t{\"op\": \"%s\", \"bytes\": %llu, \"transport\": \"%s\", \"buffers\": \"%s\", "
           "\"workers\": %u, \"servers\": %u, \"gbps\": %.6g, \"limit_gbps\": %.6g, "
           "\"ratio\": %.6g, \"p50_us\": %.6g, \"p99_us\": %.6g, \"ops_per_s\": %.6g, "
           "\"limit_us\": %.6g, \"tables\": %llu}\n",
           op, bytes, transport, buffers, row->workers, row->servers, gbps, limit_gbps,
           gbps / limit_gbps, row->p50_us, row->p99_us, row->ops_per_s, row->limit_us, tables);
    fflush(stdout);
}
