/* SPDX-License-Identifier: Apache-2.0 */
/* The small decoders. Input: a letter, then what it reads: a zmq address, s shm address, f specification
 * of PSRT_FAULT, k key file, l link message of zmq. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/jobkey.h"
#include "fuzz.h"
#include "transport/shm/shm.h"
#include "transport/transport.h"
#include "transport/zmq/zmq.h"

/* Written in full and read again it is the same place. */
static void zmq_address(const char *text)
{
    char host[ZT_HOST_MAX], host2[ZT_HOST_MAX], again[ZT_HOST_MAX + 32];
    uint16_t port = 1, port2;
    int has_port, has_port2;
    if (zt_addr_split(text, host, &port, &has_port) != PSRT_OK) return;
    FUZZ_ASSERT(*host && (has_port != 0) == (port != 0));
    if (strchr(host, ']')) return; /* no address, and not to be written in brackets */
    snprintf(again, sizeof again, has_port ? "tcp://[%s]:%u" : "[%s]", host, port);
    FUZZ_ASSERT(zt_addr_split(again, host2, &port2, &has_port2) == PSRT_OK);
    FUZZ_ASSERT(strcmp(host, host2) == 0 && port == port2 && has_port == has_port2);
    fuzz_accept();
}

static void shm_address(const char *text)
{
    char name[40], again[80];
    uint64_t host;
    if (!psrti_shm_addr_parse(text, &host, name)) return;
    snprintf(again, sizeof again, "shm:%016llx:%s", (unsigned long long)host, name);
    FUZZ_ASSERT(strcmp(text, again) == 0);
    fuzz_accept();
}

static void fault_spec(const char *text)
{
    const psrt_transport_ops_t *ops = NULL;
    if (psrti_transport_fault_create(&psrti_transport_inproc, text, &ops) != PSRT_OK) {
        FUZZ_ASSERT(ops == NULL);
        return;
    }
    psrti_transport_fault_destroy(ops);
    fuzz_accept();
}

/* A file with these bytes, readable for its owner alone. */
static int private_file(const uint8_t *data, size_t size, char path[40])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_ASSERT(fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, 40, "/proc/self/fd/%d", fd);
    return fd;
}

static void key_file(const uint8_t *data, size_t size)
{
    char path[40];
    psrti_jobkey_t key, untouched;
    int fd = private_file(data, size, path);
    memset(&key, 0xa5, sizeof key);
    untouched = key;
    if (psrti_jobkey_read(path, &key) == PSRT_OK)
        fuzz_accept();
    else
        FUZZ_ASSERT(memcmp(&key, &untouched, sizeof key) == 0);
    close(fd);
}

static void link_message(const uint8_t *data, size_t size)
{
    zt_in_t in = { .parts = 1 };
    zt_link_t link;
    FUZZ_ASSERT(zmq_msg_init_size(&in.part[0], size) == 0);
    if (size) memcpy(zmq_msg_data(&in.part[0]), data, size);
    if (zt_link_parse(&in, &link)) {
        FUZZ_ASSERT(size == ZT_LINK_BYTES && data[3] == (uint8_t)link.kind);
        FUZZ_ASSERT(psrti_get32(data + 4) == link.task && psrti_get64(data + 8) == link.value);
        FUZZ_ASSERT(psrti_get64(data + 16) == link.incarnation);
        FUZZ_ASSERT(memcmp(data + 24, link.nonce, sizeof link.nonce) == 0);
        fuzz_accept();
    }
    zmq_msg_close(&in.part[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t input_size)
{
    fuzz_in_t in = { input, input_size };
    int letter = fuzz_u8(&in);
    if (letter == 'k' || letter == 'l') {
        size_t size = in.left;
        uint8_t *data = fuzz_bytes(&in, size);
        letter == 'k' ? key_file(data, size) : link_message(data, size);
        free(data);
        return 0;
    }
    char *text = fuzz_text(&in, '\0');
    if (letter == 'a') zmq_address(text);
    if (letter == 's') shm_address(text);
    if (letter == 'f') fault_spec(text);
    free(text);
    return 0;
}

static void seed(const char *name, const char *text) { fuzz_seed(name, text, strlen(text)); }

static void seed_key(void)
{
    psrti_jobkey_t key = { .secret = { 1, 2, 3 }, .nonce = { 4, 5, 6 } };
    char dir[] = "/tmp/psrt-fuzz-XXXXXX", path[64];
    fuzz_out_t out = { .size = 0 };
    uint8_t text[1024];
    FUZZ_ASSERT(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/key", dir);
    FUZZ_ASSERT(psrti_jobkey_write(&key, path) == PSRT_OK);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof text);
    FUZZ_ASSERT(n > 0);
    close(fd);
    unlink(path);
    rmdir(dir);
    fuzz_put8(&out, 'k');
    fuzz_put(&out, text, (size_t)n);
    fuzz_seed("key", out.data, out.size);
}

static void seed_link(zt_link_kind_t kind, const char *name)
{
    fuzz_out_t out = { .size = 0 };
    fuzz_put(&out, "lPZ\1", 4);
    fuzz_put8(&out, kind);
    fuzz_put32(&out, 2);
    fuzz_put64(&out, 4 << 20);
    fuzz_put64(&out, 3);
    fuzz_put(&out, "0123456789abcdef", 16);
    fuzz_seed(name, out.data, out.size);
}

void fuzz_seeds(void)
{
    seed("zmq-address", "atcp://10.0.0.1:7000");
    seed("zmq-address-v6", "a[fe80::1]:7000");
    seed("zmq-host", "anode7.example.org");
    seed("shm-address", "sshm:0123456789abcdef:s0123456789abcdef");
    seed("fault", "fseed=1,drop=0.01,dup=0.01,reorder=0.01,delay=0.1,cut=0.001,ctrl=1");
    seed_key();
    seed_link(ZT_LINK_OPEN, "link-open");
    seed_link(ZT_LINK_CREDIT, "link-credit");
}
