/* SPDX-License-Identifier: Apache-2.0 */
/* Put in front of launcher/channel.c by the target launcher: its loop and its sockets are launcher_channel.c's. */
#ifndef PSRT_TESTS_FUZZ_CHANNEL_UV_H
#define PSRT_TESTS_FUZZ_CHANNEL_UV_H

#include <uv.h>

int fake_tcp_init(uv_loop_t *loop, uv_tcp_t *tcp);
int fake_timer_init(uv_loop_t *loop, uv_timer_t *timer);
int fake_timer_start(uv_timer_t *timer, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
void fake_close(uv_handle_t *handle, uv_close_cb cb);
int fake_accept(uv_stream_t *listener, uv_stream_t *stream);
int fake_tcp_connect(uv_connect_t *req, uv_tcp_t *tcp, const struct sockaddr *address,
                     uv_connect_cb cb);
int fake_read_start(uv_stream_t *stream, uv_alloc_cb alloc, uv_read_cb read);
int fake_read_stop(uv_stream_t *stream);
int fake_write(uv_write_t *req, uv_stream_t *stream, const uv_buf_t bufs[], unsigned n,
               uv_write_cb cb);
int fake_shutdown(uv_shutdown_t *req, uv_stream_t *stream, uv_shutdown_cb cb);
uint64_t fake_now(const uv_loop_t *loop);
int fake_fileno(const uv_handle_t *handle, uv_os_fd_t *fd);
int fake_nodelay(uv_tcp_t *tcp, int on);

#define uv_tcp_init fake_tcp_init
#define uv_timer_init fake_timer_init
#define uv_timer_start fake_timer_start
#define uv_close fake_close
#define uv_accept fake_accept
#define uv_tcp_connect fake_tcp_connect
#define uv_read_start fake_read_start
#define uv_read_stop fake_read_stop
#define uv_write fake_write
#define uv_shutdown fake_shutdown
#define uv_now fake_now
#define uv_fileno fake_fileno
#define uv_tcp_nodelay fake_nodelay

#endif
