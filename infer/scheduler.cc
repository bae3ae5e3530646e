#include "infer/scheduler.h"

#include <algorithm>
#include <utility>

namespace clover::infer {
namespace {

// Pages that every decoding sequence is left for its next tokens when another joins; without them the
// newcomer would soon be sent away again.
constexpr int64_t pages_ahead = 2;

}  // namespace

LiveSequence* Scheduler::joining(int64_t rows) {
  if (!joining_ && !admit()) return nullptr;
  const int32_t number = joining_->sequence();
  const int64_t unread = std::ssize(joining_->to_read()) - cache_.length(number);
  // Decoding may have taken since what was free when it was let in: then it waits where it is.
  return cache_.fits(number, std::min(rows, unread)) ? joining_.get() : nullptr;
}

bool Scheduler::admit() {
  if (waiting_.empty() || std::ssize(decoding_) >= max_batch_) return false;
  LiveSequence& next = *waiting_.front();
  const int32_t number = cache_.open();
  const int64_t shared = cache_.share(number, next.to_read());
  const int64_t missing = cache_.missing_pages(number, std::ssize(next.to_read()) + 1 - shared);
  if (!decoding_.empty() && missing + soon_needed() > cache_.free_pages()) {
    cache_.close(number);
    return false;
  }
  joining_ = std::move(waiting_.front());
  waiting_.pop_front();
  joining_->join(number, shared);
  newly_shared_ = joining_->answered() ? 0 : shared;
  return true;
}

int64_t Scheduler::soon_needed() const {
  int64_t pages = 0;
  for (const auto& sequence : decoding_) {
    const int64_t most = cache_.missing_pages(sequence->sequence(), sequence->tokens_left() + 1);
    pages += std::min(most, pages_ahead);
  }
  return pages;
}

void Scheduler::joined() {
  shared_tokens_ += newly_shared_;
  decoding_.push_back(std::exchange(joining_, nullptr));
}

void Scheduler::send_away(std::unique_ptr<LiveSequence> sequence) {
  cache_.close(sequence->sequence());
  sequence->leave();
  waiting_.push_front(std::move(sequence));
  ++sent_away_;
}

void Scheduler::make_room() {
  while (!room_for(std::vector<int64_t>(decoding_.size(), 1))) {
    if (joining_) {
      send_away(std::exchange(joining_, nullptr));
    } else {
      send_away(std::move(decoding_.back()));
      decoding_.pop_back();
    }
  }
}

bool Scheduler::room_for(std::span<const int64_t> rows) const {
  int64_t missing = 0;
  for (size_t i = 0; i < decoding_.size(); ++i)
    missing += cache_.missing_pages(decoding_[i]->sequence(), rows[i]);
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
