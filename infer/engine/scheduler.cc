#include "infer/engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace clover::infer {
namespace {

// Pages left to every sequence for its next tokens when another is admitted; without them the newcomer would
// soon be preempted.
constexpr int64_t pages_ahead = 2;

// Waiting for another sequence's prefix: for less than a page it takes so many shared tokens; for full pages
// at most so many tokens of the other prompt are waited for, for each token shared.
constexpr int64_t worth_waiting = 16, most_wait = 2;

/// The length of the common prefix.
int64_t common_prefix(std::span<const int64_t> one, std::span<const int64_t> other) {
  return std::ranges::mismatch(one, other).in1 - one.begin();
}

}  // namespace

std::vector<PrefillChunk> Scheduler::next_prefill_chunks(int64_t most,
                                                         std::span<const int64_t> decoding_rows) {
  for (;;) {
    std::vector<PrefillChunk> chunks = chunks_in_order(most, missing_pages(decoding_rows));
    // Only the sequences admitted after the first one can make room for it.
    if (!chunks.empty() || !decoding_.empty() || prefilling_.size() < 2) return chunks;
    preempt_last();
  }
}

std::vector<PrefillChunk> Scheduler::chunks_in_order(int64_t most, int64_t taken) {
  std::vector<PrefillChunk> chunks;
  for (size_t i = 0; most > 0; ++i) {
    if (i == prefilling_.size() && !admit()) break;
    if (waits_for_shared_prefix(i)) continue;
    Prefilling& next = prefilling_[i];
    const int32_t number = next.live->sequence();
    // Decoding sequences may have taken the pages that were free when it was admitted: then it waits.
    const auto missing = [&] { return cache_.missing_pages(number, std::min(most, left_to_prefill(next))); };
    const auto fits = [&] { return taken + missing() <= cache_.free_pages(); };
    if (!fits()) break;
    if (!std::exchange(next.begun, true))
      note_held(next, cache_.copy_page_rows(number, next.live->prefill_tokens()));
    if (!fits()) break;
    const int64_t all = left_to_prefill(next), rows = std::min(most, all);
    if (rows == 0) continue;  // the pass in flight prefills its end
    taken += missing();
    chunks.push_back({next.live.get(), cache_.length(number), rows, rows == all});
    most -= rows;
  }
  return chunks;
}

bool Scheduler::admit() {
  if (waiting_.empty() || std::ssize(decoding_) + std::ssize(prefilling_) >= max_batch_) return false;
  LiveSequence& next = *waiting_.front();
  const int32_t number = cache_.open(std::ssize(next.request().prompt));
  const int64_t shared = cache_.share(number, next.prefill_tokens());
  const int64_t missing = cache_.missing_pages(number, std::ssize(next.prefill_tokens()) + 1 - shared);
  const bool alone = decoding_.empty() && prefilling_.empty();
  if (!alone && missing + pages_reserved() > cache_.free_pages()) {
    cache_.close(number);
    return false;
  }
  next.admit(number, shared);
  prefilling_.push_back({std::move(waiting_.front()), next.has_answer(), shared});
  waiting_.pop_front();
  return true;
}

void Scheduler::note_held(Prefilling& prefilling, int64_t held) {
  prefilling.shared = held;
  prefilling.live->admit(prefilling.live->sequence(), held);
}

/// Takes the prefix that other sequences have published by now, and returns whether one before it in the
/// queue will soon have prefilled more of it.  For less than a page it waits once only: otherwise sequences
/// that agree a little longer each would be prefilled one by one.
bool Scheduler::waits_for_shared_prefix(size_t index) {
  Prefilling& one = prefilling_[index];
  if (one.begun) return false;
  const std::span<const int64_t> ids = one.live->prefill_tokens(), front = ids.first(ids.size() - 1);
  note_held(one, cache_.share(one.live->sequence(), ids));
  int64_t longest = 0;
  for (size_t i = 0; i < index; ++i) {
    const std::span<const int64_t> other = prefilling_[i].live->prefill_tokens();
    const int64_t both = common_prefix(front, other.first(other.size() - 1));
    const int64_t in_pages = both / cache_.page_size() * cache_.page_size() - one.shared;
    if (in_pages > 0 && most_wait * in_pages >= left_to_prefill(prefilling_[i])) return true;
    longest = std::max(longest, both);
  }
  const int64_t known = one.shared + cache_.copyable_page_rows(one.live->sequence(), ids);
  return longest - 1 - known >= worth_waiting && !std::exchange(one.waited, true);
}

int64_t Scheduler::left_to_prefill(const Prefilling& prefilling) const {
  return std::ssize(prefilling.live->prefill_tokens()) - cache_.length(prefilling.live->sequence());
}

int64_t Scheduler::pages_reserved() const {
  int64_t pages = 0;
  const auto add = [&](const LiveSequence& live, int64_t left) {
    const int64_t most = cache_.missing_pages(live.sequence(), left + live.tokens_left() + 1);
    pages += std::min(most, cache_.missing_pages(live.sequence(), left) + pages_ahead);
  };
  for (const auto& sequence : decoding_) add(*sequence, 0);
  for (const Prefilling& prefilling : prefilling_) add(*prefilling.live, left_to_prefill(prefilling));
  return pages;
}

void Scheduler::prefill_done(const LiveSequence& sequence) {
  const auto its =
      std::ranges::find(prefilling_, &sequence, [](const Prefilling& one) { return one.live.get(); });
  if (!its->was_preempted) shared_tokens_ += its->shared;
  decoding_.push_back(std::move(its->live));
  prefilling_.erase(its);
}

void Scheduler::preempt(std::unique_ptr<LiveSequence> sequence) {
  cache_.close(sequence->sequence());
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
  while (!room_for(std::vector<int64_t>(decoding_.size(), 1))) preempt_last();
}

int64_t Scheduler::missing_pages(std::span<const int64_t> decoding_rows) const {
  int64_t missing = 0;
  for (size_t i = 0; i < decoding_rows.size(); ++i)
    missing += cache_.missing_pages(decoding_[i]->sequence(), decoding_rows[i]);
  return missing;
}

bool Scheduler::room_for(std::span<const int64_t> rows, std::span<const PrefillChunk> chunks) const {
  int64_t missing = missing_pages(rows);
  for (const PrefillChunk& chunk : chunks)
    missing += cache_.missing_pages(chunk.live->sequence(), chunk.rows);
  return missing <= cache_.free_pages();
}

std::vector<std::unique_ptr<LiveSequence>> Scheduler::take_finished() {
  std::vector<std::unique_ptr<LiveSequence>> finished;
  for (auto& sequence : decoding_) {
    if (!sequence->finished()) continue;
    cache_.close(sequence->sequence());
    finished.push_back(std::move(sequence));
  }
  std::erase(decoding_, nullptr);
  return finished;
}

}  // namespace clover::infer
