#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "infer/live_sequence.h"
#include "model/kv_cache.h"

namespace clover::infer {

/// Which sequences are decoded.  They join in order, one at a time, as soon as the cache has room for what is
/// known of them; how long answers become is not, so now and then the one that joined last has to leave for a
/// while: its keys and values are dropped and read again, to the same bits, when it comes back.
class Scheduler {
 public:
  /// `cache` is borrowed.
  Scheduler(model::KvCache& cache, int64_t max_batch) : cache_(cache), max_batch_(max_batch) {}

  /// The sequence must fit into the cache when it is alone.
  void submit(std::unique_ptr<LiveSequence> sequence) { waiting_.push_back(std::move(sequence)); }

  /// The sequence to be read next, with room for `rows` more of its tokens (fewer at its end); null when none
  /// waits or has room.
  LiveSequence* joining(int64_t rows);
  /// It has been read to its end and is decoded from now on.
  void joined();

  const std::vector<std::unique_ptr<LiveSequence>>& decoding() const { return decoding_; }

  /// Sends sequences away until each that is left has room for one more row.
  void make_room();
  /// Whether the decoding sequences have room for so many more rows each.
  bool room_for(std::span<const int64_t> rows) const;

  /// Takes out what is finished.
  std::vector<std::unique_ptr<LiveSequence>> take_finished();

  bool idle() const { return waiting_.empty() && !joining_ && decoding_.empty(); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  /// How often a sequence was sent away, and how many prompt tokens others had read already.
  int64_t sent_away() const { return sent_away_; }
  int64_t shared_tokens() const { return shared_tokens_; }

 private:
  bool admit();
  int64_t soon_needed() const;
  void send_away(std::unique_ptr<LiveSequence> sequence);

  model::KvCache& cache_;
  int64_t max_batch_;
  std::deque<std::unique_ptr<LiveSequence>> waiting_;
  std::unique_ptr<LiveSequence> joining_;
  std::vector<std::unique_ptr<LiveSequence>> decoding_;  // in the order they joined
  int64_t newly_shared_ = 0;                             // prompt tokens of joining_ that others had read
  int64_t sent_away_ = 0, shared_tokens_ = 0;
};

}  // namespace clover::infer
