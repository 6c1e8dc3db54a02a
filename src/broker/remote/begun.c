/* SPDX-License-Identifier: Apache-2.0 */
/* Begun runs: what is on the board goes with the node's stream, some ten microseconds later. */
#include "broker/remote/internal.h"

enum { FIELD_BEGUN = 5, FIELD_SLOTS = 1, FIELD_EPOCHS = 2, VARINT_32_MAX = 5 };

void remote_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    struct remote *remote = mr_container(broker, struct remote, broker);
    uint32_t said;
    bool waits = mr_board_write(&remote->board, slot, epoch, &said);
    remote_flush_soon(remote);
    if (waits)
        mr_board_await(&remote->board, said);
}

void begun_flushed(struct remote *remote)
{
    struct mr_msg *left = mr_board_said(&remote->board);
    if (left != NULL)
        mr_rpc_post(remote->rpc, left);
}

void begun_unsaid(struct node *node)
{
    struct mr_board *board = &node->remote->board;
    for (uint32_t slot = node->first_slot; slot < node->first_slot + node->slots; slot++)
        if (mr_board_epoch(board, slot) != 0)
            mr_board_unsay(board, slot);
}

/* One message for slots of a word, whose first is this one of the node. */
static void say_word(struct node *node, uint32_t first, uint64_t bits)
{
    uint8_t slots[MR_BOARD_WORD * VARINT_32_MAX], epochs[MR_BOARD_WORD * sizeof(uint64_t)];
    size_t slots_len = 0, epochs_len = 0;
    for (; bits != 0; bits &= bits - 1) {
        uint32_t own = first + (uint32_t)__builtin_ctzll(bits);
        uint64_t epoch = mr_board_epoch(&node->remote->board, node->first_slot + own);
        for (; own >= 0x80; own >>= 7)
            slots[slots_len++] = (uint8_t)(own | 0x80);
        slots[slots_len++] = (uint8_t)own;
        mr_store64(epochs + epochs_len, epoch);
        epochs_len += sizeof(uint64_t);
    }
    uint8_t message[sizeof slots + sizeof epochs + 16];
    uint8_t *at = mr_flat_put_head(message, FIELD_SLOTS, slots_len);
    memcpy(at, slots, slots_len);
    at = mr_flat_put_head(at + slots_len, FIELD_EPOCHS, epochs_len);
    memcpy(at, epochs, epochs_len);
    node_say(node, FIELD_BEGUN, mr_slice_make(message, (size_t)(at + epochs_len - message)));
}

void begun_send(struct node *node)
{
    for (uint32_t slot = 0; slot < node->slots; slot += MR_BOARD_WORD) {
        uint64_t bits = mr_board_changes(&node->remote->board, node->first_slot + slot);
        if (bits != 0)
            say_word(node, slot, bits);
    }
}
