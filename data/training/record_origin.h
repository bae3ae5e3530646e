#pragma once

#include <cstddef>

#include "data/training/sample_groups.h"
#include "data/training/training_record.h"

namespace clover::data {

/// The origin of sample number `sample` of a record, by which samples are grouped so that held-out data is
/// new to the heads (sample_groups.h).  For a conversation the prompt is its messages up to the first user
/// message, which is the same for all turns; for texts it is the prompt.  Empty for token ids: their prompt
/// is taken from the ids.
SampleOrigin sample_origin(const TrainingRecord& record, size_t sample);

}  // namespace clover::data
