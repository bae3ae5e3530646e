#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "infer/engine/live_sequence.h"
#include "model/cache/kv_cache.h"

namespace clover::infer {

/// Which sequences are decoded, and what those that join read.  They join in order as soon as the cache has
/// room for what is known of them; how long answers become is not, so now and then the one that joined last
/// has to leave for a while: its keys and values are dropped and read again, to the same bits, when it comes
/// back.
class Scheduler {
 public:
  /// `cache` is borrowed.
  Scheduler(model::KvCache& cache, int64_t max_batch) : cache_(cache), max_batch_(max_batch) {}

  /// The sequence must fit into the cache when it is alone.
  void submit(std::unique_ptr<LiveSequence> sequence) { waiting_.push_back(std::move(sequence)); }

  /// What the next pass reads of sequences that join, at most `most` tokens in all, beside `decoding_rows`
  /// more rows of each decoding one.  What another one is about to read and both begin with is left to that
  /// one: it will be shared.
  std::vector<PromptChunk> next_chunks(int64_t most, std::span<const int64_t> decoding_rows);
  /// It has been read to its end and is decoded from now on.
  void joined(const LiveSequence& sequence);

  const std::vector<std::unique_ptr<LiveSequence>>& decoding() const { return decoding_; }

  /// Sends sequences away until each that is left has room for one more row.
  void make_room();
  /// Whether the decoding sequences have room for so many more rows each, beside what is to be read.
  bool room_for(std::span<const int64_t> rows, std::span<const PromptChunk> chunks = {}) const;

  /// Takes out what is finished.
  std::vector<std::unique_ptr<LiveSequence>> take_finished();

  bool idle() const { return waiting_.empty() && joining_.empty() && decoding_.empty(); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  /// How often a sequence was sent away, and how many prompt tokens others had read already.
  int64_t sent_away() const { return sent_away_; }
  int64_t shared_tokens() const { return shared_tokens_; }

 private:
  /// One that is being read, or waits for what another one reads.
  struct Joining {
    std::unique_ptr<LiveSequence> live;
    bool returns;         // and was decoded before
    int64_t shared = 0;   // tokens that others had read
    bool waited = false;  // for less than a page
    bool begun = false;   // to read what nobody had
  };
  std::vector<PromptChunk> chunks_in_order(int64_t most, int64_t taken);
  bool admit();
  bool is_left_to_another(size_t index);
  void take(Joining& joining, int64_t held);
  int64_t unread(const Joining& joining) const;
  int64_t missing_pages(std::span<const int64_t> decoding_rows) const;
  int64_t soon_needed() const;
  void send_away(std::unique_ptr<LiveSequence> sequence);
  void send_last_away();

  model::KvCache& cache_;
  int64_t max_batch_;
  std::deque<std::unique_ptr<LiveSequence>> waiting_;
  std::vector<Joining> joining_;                         // in order
  std::vector<std::unique_ptr<LiveSequence>> decoding_;  // in the order they joined
  int64_t sent_away_ = 0, shared_tokens_ = 0;
};

}  // namespace clover::infer
