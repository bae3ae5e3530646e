#include "infer/engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace clover::infer {
namespace {

// Pages that stay free for the next tokens of each sequence when another one is admitted.  Without them the
// new sequence would soon be preempted.
constexpr int64_t spare_pages_per_sequence = 2;

// A sequence waits for another one to prefill a prefix that both have
//   - if full pages become shared, and the other has at most so many tokens to prefill for each shared token
constexpr int64_t max_wait_per_shared_token = 2;
//   - else for one pass, if at least so many tokens become shared
constexpr int64_t min_shared_tokens = 16;

int64_t common_prefix_length(std::span<const int64_t> one, std::span<const int64_t> other) {
  return std::ranges::mismatch(one, other).in1 - one.begin();
}

}  // namespace

std::vector<PrefillChunk> Scheduler::next_prefill_chunks(int64_t max_tokens,
                                                         std::span<const int64_t> decoding_rows) {
  for (;;) {
    std::vector<PrefillChunk> chunks = chunks_in_order(max_tokens, missing_pages(decoding_rows));
    // Nothing decodes and the first sequence lacks pages: those admitted after it must give up theirs.
    if (!chunks.empty() || !decoding_.empty() || prefilling_.size() < 2) return chunks;
    preempt_last();
  }
}

std::vector<PrefillChunk> Scheduler::chunks_in_order(int64_t max_tokens, int64_t reserved_pages) {
  std::vector<PrefillChunk> chunks;
  for (size_t i = 0; max_tokens > 0; ++i) {
    if (i == prefilling_.size() && !admit_next()) break;
    if (waits_for_shared_prefix(i)) continue;
    Prefilling& next = prefilling_[i];
    const int32_t number = next.live->seq_id();
    const auto missing = [&] {
      return cache_.missing_pages(number, std::min(max_tokens, tokens_to_prefill(next)));
    };
    const auto fits = [&] { return reserved_pages + missing() <= cache_.free_pages(); };
    // Decoding sequences may have taken the pages that were free when this one was admitted: then it waits.
    if (!fits()) break;
    if (!std::exchange(next.prefill_begun, true))
      set_shared_tokens(next, cache_.copy_page_rows(number, next.live->prefill_tokens()));
    if (!fits()) break;
    const int64_t remaining = tokens_to_prefill(next), rows = std::min(max_tokens, remaining);
    if (rows == 0) continue;  // the pass in flight prefills the sequence's last tokens
    reserved_pages += missing();
    chunks.push_back({next.live.get(), cache_.length(number), rows, rows == remaining});
    max_tokens -= rows;
  }
  return chunks;
}

bool Scheduler::admit_next() {
  if (waiting_.empty() || std::ssize(decoding_) + std::ssize(prefilling_) >= max_batch_) return false;
  LiveSequence& next = *waiting_.front();
  const int32_t number = cache_.open(std::ssize(next.request().prompt));
  const int64_t shared = cache_.share_prefix(number, next.prefill_tokens());
  const int64_t missing = cache_.missing_pages(number, std::ssize(next.prefill_tokens()) + 1 - shared);
  const bool alone = decoding_.empty() && prefilling_.empty();
  if (!alone && missing + pages_soon_needed() > cache_.free_pages()) {
    cache_.close(number);
    return false;
  }
  next.admit(number, shared);
  prefilling_.push_back({std::move(waiting_.front()), next.has_answer(), shared});
  waiting_.pop_front();
  return true;
}

void Scheduler::set_shared_tokens(Prefilling& prefilling, int64_t tokens) {
  prefilling.shared_tokens = tokens;
  prefilling.live->admit(prefilling.live->seq_id(), tokens);
}

/// Shares the pages of the sequence's prefix that others have published by now.  Returns whether it should
/// wait, because a sequence admitted before it will soon have prefilled more of that prefix.  By the second
/// rule (min_shared_tokens) it waits one pass at most, so that a chain of prompts of which each shares a
/// little more with the next is not prefilled one by one.
bool Scheduler::waits_for_shared_prefix(size_t index) {
  Prefilling& own = prefilling_[index];
  if (own.prefill_begun) return false;
  const std::span<const int64_t> ids = own.live->prefill_tokens(), all_but_last = ids.first(ids.size() - 1);
  set_shared_tokens(own, cache_.share_prefix(own.live->seq_id(), ids));
  int64_t longest_common = 0;
  for (size_t i = 0; i < index; ++i) {
    const std::span<const int64_t> other = prefilling_[i].live->prefill_tokens();
    const int64_t common = common_prefix_length(all_but_last, other.first(other.size() - 1));
    const int64_t in_full_pages = common / cache_.page_size() * cache_.page_size() - own.shared_tokens;
    if (in_full_pages > 0 && max_wait_per_shared_token * in_full_pages >= tokens_to_prefill(prefilling_[i]))
      return true;
    longest_common = std::max(longest_common, common);
  }
  // Within a page, a row is copied only if the token after it is the same too, which drafters with layers in
  // the cache read beside the row: hence the 1.
  const int64_t shared_without_waiting =
      own.shared_tokens + cache_.copyable_page_rows(own.live->seq_id(), ids);
  return longest_common - 1 - shared_without_waiting >= min_shared_tokens && !std::exchange(own.waited, true);
}

int64_t Scheduler::tokens_to_prefill(const Prefilling& prefilling) const {
  return std::ssize(prefilling.live->prefill_tokens()) - cache_.length(prefilling.live->seq_id());
}

int64_t Scheduler::pages_soon_needed() const {
  int64_t pages = 0;
  const auto add = [&](const LiveSequence& live, int64_t to_prefill) {
    const int64_t to_finish = cache_.missing_pages(live.seq_id(), to_prefill + live.tokens_left() + 1);
    pages += std::min(to_finish, cache_.missing_pages(live.seq_id(), to_prefill) + spare_pages_per_sequence);
  };
  for (const auto& sequence : decoding_) add(*sequence, 0);
  for (const Prefilling& prefilling : prefilling_) add(*prefilling.live, tokens_to_prefill(prefilling));
  return pages;
}

void Scheduler::prefill_done(const LiveSequence& sequence) {
  const auto done =
      std::ranges::find(prefilling_, &sequence, [](const Prefilling& each) { return each.live.get(); });
  if (!done->was_preempted) shared_tokens_ += done->shared_tokens;
  decoding_.push_back(std::move(done->live));
  prefilling_.erase(done);
}

void Scheduler::preempt(std::unique_ptr<LiveSequence> sequence) {
  cache_.close(sequence->seq_id());
  sequence->preempt();
  waiting_.push_front(std::move(sequence));
  ++preemptions_;
}

void Scheduler::preempt_last() {
  if (!prefilling_.empty()) {
    std::unique_ptr<LiveSequence> last = std::move(prefilling_.back().live);
    prefilling_.pop_back();
    return preempt(std::move(last));
  }
  std::unique_ptr<LiveSequence> last = std::move(decoding_.back());
  decoding_.pop_back();
  preempt(std::move(last));
}

void Scheduler::preempt_for_room() {
  while (!has_room_for(std::vector<int64_t>(decoding_.size(), 1))) preempt_last();
}

int64_t Scheduler::missing_pages(std::span<const int64_t> decoding_rows) const {
  int64_t missing = 0;
  for (size_t i = 0; i < decoding_rows.size(); ++i)
    missing += cache_.missing_pages(decoding_[i]->seq_id(), decoding_rows[i]);
  return missing;
}

bool Scheduler::has_room_for(std::span<const int64_t> rows, std::span<const PrefillChunk> chunks) const {
  int64_t missing = missing_pages(rows);
  for (const PrefillChunk& chunk : chunks) missing += cache_.missing_pages(chunk.live->seq_id(), chunk.rows);
  return missing <= cache_.free_pages();
}

std::vector<std::unique_ptr<LiveSequence>> Scheduler::take_finished() {
  std::vector<std::unique_ptr<LiveSequence>> finished;
  for (auto& sequence : decoding_) {
    if (!sequence->finished()) continue;
    cache_.close(sequence->seq_id());
    finished.push_back(std::move(sequence));
  }
  std::erase(decoding_, nullptr);
  return finished;
}

}  // namespace clover::infer
