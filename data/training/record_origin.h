#pragma once

#include <cstddef>

#include "data/training/sample_groups.h"
#include "data/training/training_record.h"

namespace clover::data {

/// What sample number `sample` of those made of a record begins with: of a conversation its messages up to
/// the user's first, so that one recorded a line a turn begins alike on every line; of texts the prompt as it
/// stands.  Empty for tokens, which say it themselves.
SampleOrigin origin_of(const TrainingRecord& record, size_t sample);

}  // namespace clover::data
