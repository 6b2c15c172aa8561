/* SPDX-License-Identifier: Apache-2.0 */
/* Small collectives among a few ranks of one host, without messages: each member writes its contribution to its
 * own segment, and reads those of the others straight out of theirs. Nobody writes to a segment but its owner, so
 * peers can map it read-only, and whatever stands in it can at worst spoil a result: sizes and places come from
 * the reader's own call.
 *
 * A segment has two slots, used in turn. A slot begins with a word: number of the operation and signature of the
 * call, written after the data behind it (release; readers acquire). A reader compares it with the word of its own
 * call: one load tells that the data are there and that both called the same. Data begin behind the word, so
 * 64 bytes take two lines; what is larger begins in a line of its own.
 *
 * Why two slots suffice, and no member waits when it leaves an operation. Operation k uses slot k mod 2, so whoever
 * publishes k overwrites k - 2.
 *  (1) A member publishes k only after it has seen the word k - 1 of every other one. Allreduce, allgather,
 *      reduce_scatter, alltoall and barrier have seen it when they end. Reduce, gather (not the root), broadcast
 *      and scatter end when they have what they need, maybe nothing; the rest is waited for by the next operation,
 *      before it publishes.
 *  (2) A member publishes its word k - 1 after it has ended k - 2, and all that k - 2 reads is read then. Its loads
 *      come before that store (release), and ours of the word before our stores to the slot (acquire).
 *  By (1) and (2) nobody still reads a slot that is overwritten. Nor does a word that somebody waits for vanish:
 *  who has not seen our k - 1 or needs our k has not published k + 1, without which nobody publishes k + 2. So a
 *  reader of slot k mod 2 finds k - 2 or k, never k + 2; a word of another number is a broken peer.
 *  The root of a broadcast is therefore at most one operation ahead of its slowest member. A different call is
 *  noticed by whoever sees the word: at the latest within the next operation.
 *  A new segment holds the operations 0 and -1, which everybody has ended.
 *
 * What does not fit into a slot lies in the lap, operations behind one another, from the beginning again when there is no
 * room before the end: all make the same calls, so all know where, and k lies apart from k - 1. A line that another core
 * has read is dear to write; when its turn comes again it has left the caches of single cores.
 *
 * With three members and more, an allreduce leaves the sum of such data: whoever finds all contributions looks whether
 * somebody else had them before, and then copies the sum instead of making it once more. It is made when all have published
 * k, so all have ended k - 1, and nobody reads that of k - 2, which it overwrites. Two that find nothing both make it, of
 * the same bits. It pays where members share cores.
 *
 * Sleeping. Who finds nothing names the member that it waits for in its own segment, passes a full fence, and looks
 * once more; who publishes passes a full fence and then reads whether it is waited for. One of the two sees the
 * other. The publisher's fence comes after its first look for the others, when its stores have long left the
 * core: until then it would cost as much as the rest. */
#ifndef PSRTI_COLL_FLAT_H
#define PSRTI_COLL_FLAT_H

#include "runtime/coll/coll.h"

#define PSRTI_FLAT_MEMBERS 8u   /* at most                                           */
#define PSRTI_FLAT_DATA 4096u   /* bytes that a member contributes and a slot can take  */
#define PSRTI_FLAT_WIDE 262144u /* at most, of two members or where members share cores */
#define PSRTI_FLAT_LAP (2u << 20)
#define PSRTI_FLAT_BYTES (8576u + 2 * (128 + PSRTI_FLAT_WIDE) + PSRTI_FLAT_LAP) /* of a segment */

typedef struct psrti_flat psrti_flat_t;

typedef enum psrti_flat_state {
    PSRTI_FLAT_WAITING,
    PSRTI_FLAT_DONE,
    PSRTI_FLAT_MISMATCH, /* a member called something else */
    PSRTI_FLAT_BROKEN    /* a segment holds what no member writes */
} psrti_flat_state_t;

/* Before the own segment is handed to the others. */
void psrti_flat_format(void *segment, uint32_t member, uint32_t members);
/* Segments by member, PSRTI_FLAT_BYTES each, the own one writable; they outlive it. ERR_INVALID: not 1 to
 * PSRTI_FLAT_MEMBERS members; ERR_PROTOCOL: a segment of another version or group; ERR_NO_MEMORY. */
psrt_status_t psrti_flat_create(const psrti_kernels_t *kernels, uint32_t member, uint32_t members,
                                void *const *segments, psrti_flat_t **flat_p);
void psrti_flat_free(psrti_flat_t *flat);

/* Can this call go this way, where a member contributes up to `bytes` (at most PSRTI_FLAT_WIDE)? The same answer on all members that call the same. */
int psrti_flat_fits(uint32_t members, uint32_t bytes, const psrti_coll_call_t *call);

/* A call that fits, without its buffers, and back. */
uint32_t psrti_flat_pack(const psrti_coll_call_t *call);
psrti_coll_call_t psrti_flat_unpack(uint32_t packed);

/* Begins a call that fits, in the order of the others; the one before is DONE. Buffers as in coll.h, untouched by
 * the caller until this one is. */
void psrti_flat_begin(psrti_flat_t *flat, const psrti_coll_call_t *call);
/* DONE: the result is in `out`. MISMATCH and BROKEN stay for ever. */
psrti_flat_state_t psrti_flat_poll(psrti_flat_t *flat);
/* Polls until it is not WAITING, `polls` times at most. */
psrti_flat_state_t psrti_flat_spin(psrti_flat_t *flat, unsigned polls);
/* Bit set of members to be woken; the own one: those who sleep on the own word. To be called soon after begin and after
 * each poll, best after the first. */
uint32_t psrti_flat_wakes(psrti_flat_t *flat);
/* What they sleep on. */
const _Atomic uint32_t *psrti_flat_word(const psrti_flat_t *flat);

/* Before sleeping. 1: still WAITING, and the next member that is waited for will wake this one; 0: poll again. */
int psrti_flat_want_wake(psrti_flat_t *flat);
/* The same, to sleep on a word of that member while it is *number_p; NULL: poll again. */
const _Atomic uint32_t *psrti_flat_want_word(psrti_flat_t *flat, uint32_t *number_p);
void psrti_flat_awake(psrti_flat_t *flat);

/* Bit set of members that WAITING waits for: they have not begun this operation, or not the one before. */
uint32_t psrti_flat_missing(const psrti_flat_t *flat);
/* After MISMATCH and BROKEN: the member, and after MISMATCH what it called and what was called here. Without
 * buffers; only values that a call can have. */
uint32_t psrti_flat_culprit(const psrti_flat_t *flat, psrti_coll_call_t *theirs,
                            psrti_coll_call_t *ours);

#endif
