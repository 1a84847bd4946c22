/* Typed buffer accesses: the formats of elements in memory, and their conversions.
 *
 *   element ─► components, by the data format ─► numbers, by the numeric format ─► registers
 *
 * A MUBUF instruction takes the formats from the buffer resource, whose DST_SEL selects a component
 * for each register. A MTBUF instruction has its own formats, and takes the components in order.
 * A component that the element lacks reads as 0, and one that a store lacks is stored as 0. (CDNA3
 * ISA guide, chapter 9; LLVM's FeatureDefaultComponentZero.) The names of packed formats
 * begin with the highest bits. Numbers are rounded to nearest even, and to 10 and 11 bits towards
 * zero as in Direct3D; integers lose the bits that a component does not have. The guides do not
 * specify these rules. */
#ifndef CUPYGEMM_TYPED_H
#define CUPYGEMM_TYPED_H

#include "half.h"
#include "lanes.h"

enum number { UNORM, SNORM, USCALED, SSCALED, UINT, SINT, RESERVED_NUMBER, FLOAT };
enum { IDENTITY = 4 | 5 << 3 | 6 << 6 | 7 << 9, ELEMENT_BYTES = 16 };

/* The bits of the components of a data format, the lowest first. */
static const uint8_t COMPONENT_BITS[16][4] = {
    {0},              /* invalid */
    {8},              /* 8 */
    {16},             /* 16 */
    {8, 8},           /* 8_8 */
    {32},             /* 32 */
    {16, 16},         /* 16_16 */
    {11, 11, 10},     /* 10_11_11 */
    {10, 11, 11},     /* 11_11_10 */
    {2, 10, 10, 10},  /* 10_10_10_2 */
    {10, 10, 10, 2},  /* 2_10_10_10 */
    {8, 8, 8, 8},     /* 8_8_8_8 */
    {32, 32},         /* 32_32 */
    {16, 16, 16, 16}, /* 16_16_16_16 */
    {32, 32, 32},     /* 32_32_32 */
    {32, 32, 32, 32}, /* 32_32_32_32 */
    {0},              /* reserved */
};

static inline int typed_bytes(int data_format) {
    const uint8_t *bits = COMPONENT_BITS[data_format];
    return (bits[0] + bits[1] + bits[2] + bits[3]) / 8;
}

/* Whether each component of a data format can hold a kind of number. */
static inline bool is_typed_format(int data_format, int number) {
    const uint8_t *bits = COMPONENT_BITS[data_format];
    if (!bits[0] || number == RESERVED_NUMBER)
        return false;
    for (int c = 0; c < 4 && bits[c]; c++) {
        bool wide = bits[c] == 32, is_float = wide || bits[c] == 16 || bits[c] == 11 ||
                                              (bits[c] == 10 && bits[2] && !bits[3]);
        if (number == FLOAT ? !is_float : wide && number < UINT)
            return false;
    }
    return true;
}

/* -- components -------------------------------------------------------------------------------- */

static inline uint32_t component_at(const uint8_t *element, int at, int bits) {
    uint32_t word;
    memcpy(&word, element + at / 8, 4);
    return word >> at % 8 & (uint32_t)low_bits(bits);
}

static inline void put_component(uint8_t *element, int at, int bits, uint32_t value) {
    uint32_t word;
    memcpy(&word, element + at / 8, 4);
    word |= (value & (uint32_t)low_bits(bits)) << at % 8;
    memcpy(element + at / 8, &word, 4);
}

static inline int32_t extended(uint32_t raw, int bits) {
    return (int32_t)(raw << (32 - bits)) >> (32 - bits);
}

static inline float of_half(uint32_t raw) {
    uint16_t bits = (uint16_t)raw;
    _Float16 half;
    memcpy(&half, &bits, 2);
    return (float)half;
}

/* The value that a register receives from a component; `half` is D16. */
static inline uint32_t loaded_component(uint32_t raw, int bits, int number, bool half) {
    float value = 0, most = (float)(low_bits(bits - (number == SNORM)));
    switch (number) {
    case UNORM: value = (float)raw / most; break;
    case SNORM: value = fmaxf((float)extended(raw, bits) / most, -1); break;
    case USCALED: value = (float)raw; break;
    case SSCALED: value = (float)extended(raw, bits); break;
    case UINT: return half ? raw & 0xFFFF : raw;
    case SINT: return (uint32_t)extended(raw, bits) & (half ? 0xFFFF : ~0u);
    default:
        if (bits == 32 && !half)
            return raw;
        raw = bits == 11 ? raw << 4 : bits == 10 ? raw << 5 : raw; /* halves without a sign */
        if (bits < 32 && half)
            return raw;
        value = bits == 32 ? as_f32(raw) : of_half(raw);
    }
    return half ? float_to_half(value) : f32_bits(value);
}

/* A positive number as one of 5 bits of exponent and no sign, rounded towards zero. */
static inline uint32_t unsigned_float(float value, int fraction) {
    uint32_t infinity = 31u << fraction, bits = f32_bits(value);
    int exponent = (int)(bits >> 23 & 0xFF) - 127;
    if (value != value)
        return infinity | 1u << (fraction - 1);
    if (!(value > 0))
        return 0;
    if (bits == 0x7F800000)
        return infinity;
    if (exponent > 15)
        return infinity - 1;
    if (exponent < -14)
        return (uint32_t)(ldexpf(value, 14 + fraction));
    return (uint32_t)(exponent + 15) << fraction | (bits & 0x7FFFFF) >> (23 - fraction);
}

static inline uint32_t nearest_integer(double value, double least, double most) {
    if (value != value)
        return 0;
    value = value < least ? least : value > most ? most : value;
    return (uint32_t)(int64_t)nearbyint(value);
}

/* The bits that a register stores in a component. */
static inline uint32_t stored_component(uint32_t reg, int bits, int number, bool half) {
    double most = (double)low_bits(bits - (number & 1)), scale = number < USCALED ? most : 1;
    if (number == UINT || number == SINT)
        return half && number == SINT ? (uint32_t)extended(reg, 16) : reg;
    if (number == FLOAT && bits == (half ? 16 : 32))
        return reg;
    float value = half ? of_half(reg) : as_f32(reg);
    if (number == FLOAT)
        return bits == 32   ? f32_bits(value)
               : bits == 16 ? float_to_half(value)
                            : unsigned_float(value, bits - 5);
    double least = !(number & 1) ? 0 : number == SNORM ? -most : -most - 1;
    return nearest_integer((double)value * scale, least, most);
}

/* -- elements ---------------------------------------------------------------------------------- */

/* The offset of a lane's register of a channel from the first lane's of the first channel. */
static inline size_t typed_place(const struct operation *op, size_t pitch, int channel, int lane) {
    return (size_t)(op->d16 ? channel / 2 : channel) * pitch + (size_t)lane;
}

static inline int typed_shift(const struct operation *op, int channel) {
    return op->d16 ? 16 * (op->d16 == D16_HIGH || channel % 2) : 0;
}

/* The number of the component that a register receives, or -1 for a constant. */
static inline int selected_component(const struct operation *op, int channel) {
    int selected = op->selects >> 3 * channel & 7;
    return selected < 4 ? -1 : selected - 4;
}

static inline int component_offset(const uint8_t *bits, int component) {
    int at = 0;
    for (int c = 0; c < component; c++)
        at += bits[c];
    return at;
}

/* The value that register `channel` receives from an element; with `undefined`, its undefined bits,
 * for an element that consists of undefined bits. */
static inline uint32_t typed_channel(const struct operation *op, const uint8_t *element,
                                     int channel, bool undefined) {
    const uint8_t *bits = COMPONENT_BITS[op->data_format];
    int component = selected_component(op, channel);
    bool half = op->d16, is_one = (op->selects >> 3 * channel & 7) == 1;
    if (component < 0 && is_one && !undefined)
        return op->number == UINT || op->number == SINT ? 1 : half ? 0x3C00 : 0x3F800000;
    if (component < 0 || !bits[component])
        return 0;
    uint32_t raw = component_at(element, component_offset(bits, component), bits[component]);
    if (undefined)
        return !raw ? 0 : half ? 0xFFFF : ~0u;
    return loaded_component(raw, bits[component], op->number, half);
}

/* Load an element, or its undefined bits, into the registers of a lane, to which `row` points. */
static inline void load_element(const struct operation *op, const uint8_t *memory, uint32_t *row,
                                size_t pitch, int lane, bool undefined) {
    uint8_t element[ELEMENT_BYTES + 4] = {0};
    if (memory)
        memcpy(element, memory, (size_t)op->bytes);
    for (int channel = 0; channel < op->channels; channel++) {
        uint32_t *reg = row + typed_place(op, pitch, channel, lane);
        int shift = typed_shift(op, channel);
        uint32_t value = memory ? typed_channel(op, element, channel, undefined) : 0;
        *reg = (shift && op->d16 != D16_HIGH ? *reg : 0) | value << shift;
    }
}

/* Assemble an element from the registers of a lane, or from their undefined bits. */
static inline void make_element(const struct operation *op, const uint32_t *row, size_t pitch,
                                int lane, bool undefined, uint8_t *element) {
    const uint8_t *bits = COMPONENT_BITS[op->data_format];
    memset(element, 0, ELEMENT_BYTES + 4);
    for (int channel = 0, at = 0; channel < op->channels && channel < 4 && bits[channel];
         at += bits[channel++]) {
        uint32_t value = row[typed_place(op, pitch, channel, lane)];
        value >>= typed_shift(op, channel);
        value &= op->d16 ? 0xFFFF : ~0u;
        value = undefined ? 0 - (uint32_t)(value != 0)
                          : stored_component(value, bits[channel], op->number, op->d16);
        put_component(element, at, bits[channel], value);
    }
}

#endif
