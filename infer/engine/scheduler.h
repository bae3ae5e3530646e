#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "infer/engine/live_sequence.h"
#include "model/cache/kv_cache.h"

namespace clover::infer {

/// Continuous batching: which sequences decode, and which prompt tokens the next pass prefills.  A sequence
/// is first waiting, then prefilling, then decoding.  Sequences are admitted in the order of submission, as
/// soon as the KV cache has pages for their prompts and a few tokens more.  How long answers become is not
/// known, so pages may run out: then the last sequence that is being prefilled, or else the one that began to
/// decode last, is preempted.  Its keys and values are dropped, and recomputed to the same bits when it is
/// admitted again.
class Scheduler {
 public:
  /// `cache` is borrowed.
  Scheduler(model::KvCache& cache, int64_t max_batch) : cache_(cache), max_batch_(max_batch) {}

  /// Queues a sequence.  The empty cache must have pages for all of it.  The queue has no limit: a batch job
  /// limits what it queues (BatchJobSettings::max_waiting).
  void submit(std::unique_ptr<LiveSequence> sequence) { waiting_.push_back(std::move(sequence)); }

  /// Admits sequences and returns what the next pass prefills: at most `max_tokens` tokens in all.  The pass
  /// also has decoding_rows[i] rows of each decoding sequence i.  A prefix that another sequence is about to
  /// prefill is not prefilled twice: the later sequence waits and shares its pages.
  std::vector<PrefillChunk> next_prefill_chunks(int64_t max_tokens, std::span<const int64_t> decoding_rows);
  /// Tells that the KV cache holds all of the sequence's prefill tokens: it decodes from now on.
  void prefill_done(const LiveSequence& sequence);

  const std::vector<std::unique_ptr<LiveSequence>>& decoding() const { return decoding_; }

  /// Preempts sequences until the free pages suffice for one more row of each decoding sequence.
  void preempt_for_room();
  /// Whether the free pages suffice for rows[i] more rows of each decoding sequence i, and for `chunks`.
  bool has_room_for(std::span<const int64_t> rows, std::span<const PrefillChunk> chunks = {}) const;

  /// Removes finished sequences and returns them.
  std::vector<std::unique_ptr<LiveSequence>> take_finished();

  bool idle() const { return waiting_.empty() && prefilling_.empty() && decoding_.empty(); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t preemptions() const { return preemptions_; }  // total
  /// Total of prompt tokens that were not prefilled, because another sequence had filled their pages.
  int64_t shared_tokens() const { return shared_tokens_; }

 private:
  /// An admitted sequence that does not decode yet.
  struct Prefilling {
    std::unique_ptr<LiveSequence> live;
    bool was_preempted;          // after it had emitted tokens
    int64_t shared_tokens = 0;   // cached tokens that other sequences had prefilled
    bool waited = false;         // it has waited once for less than a page of another sequence's prefix
    bool prefill_begun = false;  // it shares no more pages from then on
  };
  /// `reserved_pages`: free pages that the pass needs for its decoding sequences.
  std::vector<PrefillChunk> chunks_in_order(int64_t max_tokens, int64_t reserved_pages);
  /// Admits the first waiting sequence; false if there is none or no room for it.
  bool admit_next();
  bool waits_for_shared_prefix(size_t index);
  void set_shared_tokens(Prefilling& prefilling, int64_t tokens);
  int64_t tokens_to_prefill(const Prefilling& prefilling) const;
  int64_t missing_pages(std::span<const int64_t> decoding_rows) const;
  /// Free pages that the admitted sequences will soon need.
  int64_t pages_soon_needed() const;
  void preempt(std::unique_ptr<LiveSequence> sequence);
  /// Preempts the last sequence that is being prefilled, or else the one that began to decode last.
  void preempt_last();

  model::KvCache& cache_;
  int64_t max_batch_;
  std::deque<std::unique_ptr<LiveSequence>> waiting_;
  std::vector<Prefilling> prefilling_;                   // in the order of their admission
  std::vector<std::unique_ptr<LiveSequence>> decoding_;  // in the order in which they began to decode
  int64_t preemptions_ = 0, shared_tokens_ = 0;
};

}  // namespace clover::infer
