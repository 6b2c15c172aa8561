/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CURVE on every socket, and the handler that admits the job's key alone.
 *
 * All tasks of a job use one key pair, as servers and as clients. CURVE by itself proves that the
 * server has the secret, and admits every client; libzmq asks the handler at inproc://zeromq.zap.01
 * (RFC 27) whether a client's key may enter, after the client proved that it has its secret. With no
 * handler everyone may, so it is there before the ROUTER listens and goes after it.
 *
 * It is there without CURVE too, and admits everyone: where there is a handler, libzmq hangs up on peers
 * of the protocol versions before 3. It would abort the process if the first message of one of those came
 * while the socket is being closed (4.3.4, errno_assert in process_routing_id_msg).
 */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/log.h"
#include "transport/zmq/zmq.h"

#define ZAP_DOMAIN "psrt"
#define ZAP_FRAMES 7 /* version, request id, domain, address, identity, mechanism, credentials */

psrt_status_t zt_security_init(zt_iface_t *iface)
{
    const psrt_iface_params_t *params = &iface->params;
    if (params->security == PSRT_SECURITY_OFF) return PSRT_OK;
    if (params->security != PSRT_SECURITY_ENCRYPTED)
        return psrti_fail(PSRT_ERR_INVALID, "zmq: unknown security level %d", params->security);
    if (!params->secret)
        return psrti_fail(PSRT_ERR_INVALID, "zmq: security is encrypted and there is no job key");
    if (!zmq_has("curve"))
        return psrti_fail(PSRT_ERR_UNSUPPORTED, "zmq: this libzmq was built without CURVE");
    memcpy(iface->secret, params->secret, ZT_KEY_BYTES);
    if (sodium_init() < 0 || crypto_scalarmult_base(iface->public_key, iface->secret) != 0)
        return psrti_fail(PSRT_ERR_INVALID, "zmq: the job key is not a Curve25519 secret key");
    return PSRT_OK;
}

psrt_status_t zt_security_apply(zt_sock_t *sock, int server)
{
    zt_iface_t *iface = sock->iface;
    int curve = iface->params.security != PSRT_SECURITY_OFF, rc = 0;
    void *s = sock->socket;
    const int one = 1;
    if (server) rc |= zmq_setsockopt(s, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, strlen(ZAP_DOMAIN));
    if (curve) rc |= zmq_setsockopt(s, ZMQ_CURVE_SECRETKEY, iface->secret, ZT_KEY_BYTES);
    if (curve && server) {
        rc |= zmq_setsockopt(s, ZMQ_CURVE_SERVER, &one, sizeof(one));
    } else if (curve) {
        rc |= zmq_setsockopt(s, ZMQ_CURVE_PUBLICKEY, iface->public_key, ZT_KEY_BYTES);
        rc |= zmq_setsockopt(s, ZMQ_CURVE_SERVERKEY, iface->public_key, ZT_KEY_BYTES);
    }
    if (rc == 0) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INTERNAL, "zmq: cannot set %s: %s",
                      curve ? "CURVE keys" : "the ZAP domain", zmq_strerror(errno));
}

static int frame_is(zmq_msg_t *frame, const char *text)
{
    return zmq_msg_size(frame) == strlen(text) &&
           memcmp(zmq_msg_data(frame), text, strlen(text)) == 0;
}

static int admitted(const zt_iface_t *iface, zmq_msg_t frames[ZAP_FRAMES], unsigned count)
{
    zmq_msg_t *key = &frames[6]; /* the mechanism NULL has no credentials */
    if (count < ZAP_FRAMES - 1 || !frame_is(&frames[0], "1.0") || !frame_is(&frames[2], ZAP_DOMAIN))
        return 0;
    if (iface->params.security == PSRT_SECURITY_OFF) return frame_is(&frames[5], "NULL");
    return count == ZAP_FRAMES && frame_is(&frames[5], "CURVE") &&
           zmq_msg_size(key) == ZT_KEY_BYTES &&
           sodium_memcmp(zmq_msg_data(key), iface->public_key, ZT_KEY_BYTES) == 0;
}

static void reply(zt_sock_t *zap, zmq_msg_t *request_id, int admit)
{
    void *s = zap->socket;
    const int more = ZMQ_DONTWAIT | ZMQ_SNDMORE;
    zmq_send(s, "1.0", 3, more);
    zmq_send(s, zmq_msg_data(request_id), zmq_msg_size(request_id), more);
    zmq_send(s, admit ? "200" : "400", 3, more);
    zmq_send(s, admit ? "OK" : "not this job's key", admit ? 2 : 18, more);
    zmq_send(s, "", 0, more);
    zmq_send(s, "", 0, ZMQ_DONTWAIT);
}

static int read_request(zt_sock_t *zap, zmq_msg_t frames[ZAP_FRAMES], unsigned *count)
{
    int more = 1, rc;
    for (unsigned i = 0; i < ZAP_FRAMES; i++)
        zmq_msg_init(&frames[i]);
    for (*count = 0; more; ++*count) {
        /* cppcheck-suppress uninitvar ; initialised below when it is used */
        zmq_msg_t extra, *frame = *count < ZAP_FRAMES ? &frames[*count] : &extra;
        if (frame == &extra) zmq_msg_init(&extra);
        while ((rc = zmq_msg_recv(frame, zap->socket, ZMQ_DONTWAIT)) < 0 && errno == EINTR)
            ;
        if (rc < 0) return 0;
        more = zmq_msg_more(frame);
        if (frame == &extra) zmq_msg_close(&extra);
    }
    return 1;
}

static void zap_ready(zt_sock_t *zap)
{
    zt_iface_t *iface = zap->iface;
    zmq_msg_t frames[ZAP_FRAMES];
    unsigned count;
    while (read_request(zap, frames, &count)) {
        int admit = admitted(iface, frames, count);
        if (!admit && zt_may_log(iface))
            psrti_warn("zmq: %s: refused a client at %.*s: it does not hold the job's key",
                       iface->addr, (int)zmq_msg_size(&frames[3]),
                       (const char *)zmq_msg_data(&frames[3]));
        reply(zap, &frames[1], admit);
        for (unsigned i = 0; i < ZAP_FRAMES; i++)
            zmq_msg_close(&frames[i]);
        iface->events++;
    }
}

psrt_status_t zt_zap_open(zt_iface_t *iface)
{
    psrt_status_t status = zt_sock_open(iface, &iface->zap, ZMQ_REP, zap_ready);
    if (status != PSRT_OK) return status;
    if (zmq_bind(iface->zap.socket, "inproc://zeromq.zap.01") == 0) return PSRT_OK;
    return psrti_fail(PSRT_ERR_INTERNAL, "zmq: cannot serve authentication: %s",
                      zmq_strerror(errno));
}
