#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "infer/engine/live_sequence.h"
#include "model/cache/kv_cache.h"

namespace clover::infer {

/// Continuous batching: which sequences decode, and which prompt tokens the next pass prefills.  Requests are
/// admitted in order as soon as the cache has pages for what is known of them.  How long answers become is
/// not known, so now and then the sequence admitted last is preempted: its keys and values are dropped, and
/// recomputed, to the same bits, when it is admitted again.
class Scheduler {
 public:
  /// `cache` is borrowed.
  Scheduler(model::KvCache& cache, int64_t max_batch) : cache_(cache), max_batch_(max_batch) {}

  /// Queues a sequence; the cache must be able to hold it alone.  The queue has no limit of its own: a batch
  /// job limits what it queues (BatchJobSettings::max_waiting).
  void submit(std::unique_ptr<LiveSequence> sequence) { waiting_.push_back(std::move(sequence)); }

  /// What the next pass prefills, at most `most` tokens in all, beside decoding_rows[i] rows of each decoding
  /// sequence i.  A prefix that another sequence is about to prefill is left to it, and shared afterwards.
  std::vector<PrefillChunk> next_prefill_chunks(int64_t most, std::span<const int64_t> decoding_rows);
  /// All of its prefill tokens are in the cache: it decodes from now on.
  void prefill_done(const LiveSequence& sequence);

  const std::vector<std::unique_ptr<LiveSequence>>& decoding() const { return decoding_; }

  /// Preempts sequences until each decoding one that is left has room for one more row.
  void preempt_for_room();
  /// Whether there are pages for rows[i] more rows of each decoding sequence i, and for `chunks`.
  bool room_for(std::span<const int64_t> rows, std::span<const PrefillChunk> chunks = {}) const;

  /// Removes finished sequences and returns them.
  std::vector<std::unique_ptr<LiveSequence>> take_finished();

  bool idle() const { return waiting_.empty() && prefilling_.empty() && decoding_.empty(); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t preemptions() const { return preemptions_; }  // so far
  /// Prompt tokens that other sequences had prefilled already, so far.
  int64_t shared_tokens() const { return shared_tokens_; }

 private:
  /// An admitted sequence that does not decode yet.
  struct Prefilling {
    std::unique_ptr<LiveSequence> live;
    bool was_preempted;
    int64_t shared = 0;   // tokens that other sequences had prefilled
    bool waited = false;  // once, for less than a page of another sequence's prefix
    bool begun = false;   // to prefill tokens of its own
  };
  std::vector<PrefillChunk> chunks_in_order(int64_t most, int64_t taken);
  bool admit();
  bool waits_for_shared_prefix(size_t index);
  void note_held(Prefilling& prefilling, int64_t held);
  int64_t left_to_prefill(const Prefilling& prefilling) const;
  int64_t missing_pages(std::span<const int64_t> decoding_rows) const;
  int64_t pages_reserved() const;
  void preempt(std::unique_ptr<LiveSequence> sequence);
  void preempt_last();

  model::KvCache& cache_;
  int64_t max_batch_;
  std::deque<std::unique_ptr<LiveSequence>> waiting_;
  std::vector<Prefilling> prefilling_;                   // in the order of their admission
  std::vector<std::unique_ptr<LiveSequence>> decoding_;  // in the order in which they began to decode
  int64_t preemptions_ = 0, shared_tokens_ = 0;
};

}  // namespace clover::infer
