#pragma once

#include <cstddef>

#include "data/training/sample_groups.h"
#include "data/training/training_record.h"

namespace clover::data {

/// The origin of sample number `sample` of a record.  Samples are grouped by it, so that no prompt of the
/// held-out data is trained on (sample_groups.h).  The prompt of a conversation is its messages up to the
/// first user message, which is the same for all turns; that of a text is its prompt.  Empty for token ids:
/// their prompt is taken from the ids (token_store_writer.cc).
SampleOrigin sample_origin(const TrainingRecord& record, size_t sample);

}  // namespace clover::data
