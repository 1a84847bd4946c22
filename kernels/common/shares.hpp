// Equal shares: `count` items are dealt to `takers` in contiguous ranges. The ranges differ in
// length by at most one, and the longer ones come first.
#pragma once

#include "common/numeric.hpp"

namespace cupygemm {

struct Share {
    u32 begin, end;
};

CUPYGEMM_INLINE Share share_of(u32 count, u32 takers, u32 taker) {
    const u32 least = count / takers;
    const u32 longer = count - least * takers; // the number of takers with one item more
    const u32 begin = taker * least + minimum(taker, longer);
    return {begin, begin + least + (taker < longer ? 1 : 0)};
}

// The taker whose share contains item `thing`.
CUPYGEMM_INLINE u32 taker_of(u32 count, u32 takers, u32 thing) {
    const u32 least = count / takers;
    const u32 longer = count - least * takers;
    const u32 in_longer = longer * (least + 1);
    return thing < in_longer ? thing / (least + 1) : longer + (thing - in_longer) / least;
}

} // namespace cupygemm
