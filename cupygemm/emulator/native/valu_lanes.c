/* Instructions of the vector ALU that move data between lanes, or between lanes and scalars. */
#include "valu_rows.h"

static u32 lane_of(struct machine *m, const struct valu_operation *op, int64_t wave, u32 lane) {
    struct block source;
    fetch(m, op, &op->sources[0][0], false, wave, source.low, source.high);
    return source.low[lane];
}

static u32 selected_lane(struct machine *m, const struct valu_operation *op, int64_t wave) {
    struct block source;
    fetch(m, op, &op->sources[0][1], false, wave, source.low, source.high);
    return source.low[0] & (LANES - 1);
}

/* The lowest active lane, or lane 0 if none is active. */
void valu_v_readfirstlane_b32(struct machine *m, const void *operation, int64_t wave) {
    const struct valu_operation *op = operation;
    u64 exec = exec_of(m, wave);
    set_scalar(m, op->result, wave, lane_of(m, op, wave, exec ? first_lane(exec) : 0));
}

void valu_v_readlane_b32(struct machine *m, const void *operation, int64_t wave) {
    const struct valu_operation *op = operation;
    set_scalar(m, op->result, wave, lane_of(m, op, wave, selected_lane(m, op, wave)));
}

void valu_v_writelane_b32(struct machine *m, const void *operation, int64_t wave) {
    const struct valu_operation *op = operation;
    u32 lane = selected_lane(m, op, wave);
    vector_row(m, op->result, wave)[lane] = lane_of(m, op, wave, lane);
}

/* Exchange two registers in the active lanes. */
void valu_v_swap_b32(struct machine *m, const void *operation, int64_t wave) {
    const struct valu_operation *op = operation;
    u32 first[LANES], *left = vector_row(m, op->result, wave);
    u32 *right = vector_row(m, op->sources[0][0].reg, wave);
    u64 exec = exec_of(m, wave);
    memcpy(first, left, sizeof first);
    if (left == right)
        return;
    replace_lanes(left, right, exec);
    replace_lanes(right, first, exec);
}

/* Exchange the odd groups of `width` lanes of the result with the even groups of the source, where
 * both lanes are active. */
static void swap_groups(struct machine *m, const struct valu_operation *op, int64_t wave, int width,
                        u64 odd) {
    u32 from_left[LANES], from_right[LANES], *left = vector_row(m, op->result, wave);
    u32 *right = vector_row(m, op->sources[0][0].reg, wave);
    u64 exec = exec_of(m, wave);
    u64 both = exec & (((exec & odd) >> width) | (exec & ~odd) << width);
    for (int i = 0; i < LANES; ++i) {
        from_left[i] = left[i ^ width];
        from_right[i] = right[i ^ width];
    }
    replace_lanes(left, from_right, both & odd);
    replace_lanes(right, from_left, both & ~odd);
}

void valu_v_permlane16_swap_b32(struct machine *m, const void *operation, int64_t wave) {
    swap_groups(m, operation, wave, 16, 0xFFFF0000FFFF0000u);
}

void valu_v_permlane32_swap_b32(struct machine *m, const void *operation, int64_t wave) {
    swap_groups(m, operation, wave, 32, 0xFFFFFFFF00000000u);
}
