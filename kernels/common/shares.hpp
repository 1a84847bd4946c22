// Equal shares: `count` things dealt to `takers` in contiguous ranges, the first of which may be
// one longer than the others.
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

struct Share {
    u32 begin, end;
};

CUPYGEMM_INLINE Share share_of(u32 count, u32 takers, u32 taker) {
    const u32 least = count / takers;
    const u32 longer = count - least * takers; // this many have one more
    const u32 begin = taker * least + minimum(taker, longer);
    return {begin, begin + least + (taker < longer ? 1 : 0)};
}

// Who has a thing.
CUPYGEMM_INLINE u32 taker_of(u32 count, u32 takers, u32 thing) {
    const u32 least = count / takers;
    const u32 longer = count - least * takers;
    const u32 in_longer = longer * (least + 1);
    return thing < in_longer ? thing / (least + 1) : longer + (thing - in_longer) / least;
}

} // namespace cupygemm
