// 64 reads of LDS back to back by a workgroup of one wave, after the harness of nod-ai's
// amd-shark-ai (docs/empirical-lds): lane l reads WIDTH bytes from l * STRIDE. With 32 KiB of LDS,
// as many workgroups share a CU as there. Definitions prepended to this text set WIDTH and STRIDE.

.macro read
.if WIDTH == 4
    ds_read_b32 v8, v1
.elseif WIDTH == 8
    ds_read_b64 v[8:9], v1
.else
    ds_read_b128 v[8:11], v1
.endif
.endm

.text
.globl lds_reads
.p2align 8
.type lds_reads,@function
lds_reads:
    v_mul_u32_u24 v1, STRIDE, v0
    v_mov_b32 v4, 0
    v_mov_b32 v5, 0
    v_mov_b32 v6, 0
    v_mov_b32 v7, 0
.if WIDTH == 4
    ds_write_b32 v1, v4
.elseif WIDTH == 8
    ds_write_b64 v1, v[4:5]
.else
    ds_write_b128 v1, v[4:7]
.endif
    s_waitcnt lgkmcnt(0)
    s_barrier
.rept 64
    read
.endr
    s_waitcnt lgkmcnt(0)
    s_endpgm
.Lend:
.size lds_reads, .Lend-lds_reads

.rodata
.p2align 6
.amdhsa_kernel lds_reads
  .amdhsa_group_segment_fixed_size 32768
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 64
  .amdhsa_next_free_sgpr 32
  .amdhsa_accum_offset 64
.end_amdhsa_kernel

.amdgpu_metadata
amdhsa.version: [ 1, 2 ]
amdhsa.kernels:
  - .name: lds_reads
    .symbol: lds_reads.kd
    .kernarg_segment_size: 0
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 32768
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 32
    .vgpr_count: 64
    .agpr_count: 0
    .max_flat_workgroup_size: 64
    .args: []
.end_amdgpu_metadata
