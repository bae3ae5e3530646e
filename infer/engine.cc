#include "infer/engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "data/error.h"
#include "infer/machine.h"

namespace clover::infer {
namespace {

using data::InputError;

// The widest tree any policy grows; a sequence is given cache pages for so many rows behind its last token.
constexpr int64_t most_tree_rows = 64;
// Of them copied from the text so far: under `auto`, which trims them, and under the other policies.
constexpr int64_t most_suffix_automatic = 16, most_suffix_fixed = 8;

/// Adds the seconds of its lifetime to a total.
class Timer {
 public:
  explicit Timer(double& total) : total_(total), start_(std::chrono::steady_clock::now()) {}
  ~Timer() { total_ += seconds(); }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  double& total_;
  std::chrono::steady_clock::time_point start_;
};

model::KvCache make_cache(const model::Target& target, const model::Drafter* drafter,
                          const EngineOptions& options) {
  const model::KvShape shape = target.kv_shape(drafter ? drafter->kv_layers() : 0);
  const int64_t page_bytes = model::KvCache::bytes_per_page(shape, options.page_size);
  const int64_t memory = options.kv_memory > 0 ? options.kv_memory : available_memory() / 4;
  // More than every sequence of a full batch at full length can use would be address space for nothing.
  const int64_t longest = (target.config().context + most_tree_rows) / options.page_size + 1;
  int64_t pages = std::min(memory / page_bytes, options.max_batch * longest);
  // Whether a line is answered must not hang on how much memory happens to be free.
  if (options.kv_memory <= 0) pages = std::max(pages, longest);
  if (pages < 1) {
    throw InputError("--kv-memory " + std::to_string(memory) +
                     " holds no page of keys and values: one page of " + std::to_string(options.page_size) +
                     " tokens takes " + std::to_string(page_bytes) + " bytes; give more memory.");
  }
  return model::KvCache(shape, pages, options.page_size);
}

at::Tensor ids_tensor(std::vector<int64_t>& ids) {
  return at::from_blob(ids.data(), {static_cast<int64_t>(ids.size())}, at::kLong);
}

at::Tensor joined(const std::vector<at::Tensor>& parts) {
  if (!parts.front().defined()) return {};
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

}  // namespace

Engine::Engine(const model::Target& target, model::Drafter* drafter, const data::Tokenizer& tokenizer,
               EngineOptions options)
    : target_(target),
      drafter_(drafter),
      options_(options),
      tokenizer_(tokenizer),
      cache_(make_cache(target, drafter, options)) {
  TORCH_CHECK(!drafter || drafter->frozen(), "Engine: the drafter must be frozen");
  if (options_.budget == 0) options_.growth.policy = Policy::off;
  if (options_.growth.policy == Policy::off) options_.suffix = false;
}

int64_t Engine::most_pages(const Request& request) const {
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + request.max_tokens + most_tree_rows;
  return (tokens + options_.page_size - 1) / options_.page_size;
}

void Engine::submit(Request request) {
  const int64_t context = target_.config().context, length = static_cast<int64_t>(request.prompt.size());
  if (length == 0) throw InputError("The prompt is empty: expected at least one token.");
  if (length >= context) {
    throw InputError("The prompt has " + std::to_string(length) + " tokens, the model's context holds " +
                     std::to_string(context) + " and at least one is needed for the answer; shorten it.");
  }
  for (const int64_t id : request.prompt) {
    if (id < 0 || id >= target_.config().vocab) {
      throw InputError("The prompt holds token id " + std::to_string(id) + ", expected 0 to " +
                       std::to_string(target_.config().vocab - 1) + ".");
    }
  }
  if (request.max_tokens < 1) throw InputError("max_tokens must be at least 1.");
  request.max_tokens = std::min(request.max_tokens, context - length);
  if (most_pages(request) > cache_.pages()) {
    throw InputError("The request may need " + std::to_string(most_pages(request) * options_.page_size) +
                     " tokens of keys and values, --kv-memory holds " +
                     std::to_string(cache_.pages() * options_.page_size) + "; raise it or lower max_tokens.");
  }
  waiting_.push_back(std::move(request));
}

std::vector<Completion> Engine::step() {
  const at::NoGradGuard no_grad;
  if (drafting() && options_.growth.policy == Policy::automatic) calibrate();
  admit();
  // A first token can end an answer: such a sequence takes no part in decoding.
  std::vector<Completion> completions = collect();
  if (!live_.empty()) {
    decode();
    for (Completion& completion : collect()) completions.push_back(std::move(completion));
  }
  return completions;
}

std::vector<Completion> Engine::collect() {
  std::vector<Completion> completions;
  for (auto& live : live_) {
    if (on_text_) {
      if (const std::string text = live->take_text(); !text.empty()) on_text_(live->request().tag, text);
    }
    if (!live->finished()) continue;
    cache_.close(live->sequence());
    ++stats_.requests;
    completions.push_back(live->take_completion());
    live.reset();
  }
  std::erase(live_, nullptr);
  return completions;
}

// What running requests may come to need: pages of their own, and those they share.
int64_t Engine::promised_pages() const {
  int64_t pages = cache_.shared_pages();
  for (const auto& live : live_) pages += most_pages(live->request()) - cache_.shared_pages(live->sequence());
  return pages;
}

void Engine::admit() {
  while (!waiting_.empty() && running() < options_.max_batch) {
    // A request joins only when it can run to its end, so nothing ever has to be thrown out again.
    const int32_t sequence = cache_.open();
    const int64_t shared = cache_.share(sequence, waiting_.front().prompt);
    const int64_t own = most_pages(waiting_.front()) - cache_.shared_pages(sequence);
    if (promised_pages() + own > cache_.pages()) {
      cache_.close(sequence);
      break;
    }
    live_.push_back(std::make_unique<LiveSequence>(std::move(waiting_.front()), sequence, tokenizer_,
                                                   target_.config().end_ids, options_.suffix));
    waiting_.pop_front();
    stats_.shared_prompt_tokens += shared;
    prefill(*live_.back());
  }
}

void Engine::prefill(LiveSequence& live) {
  Timer timer(stats_.prefill_seconds);
  const std::vector<int64_t>& prompt = live.request().prompt;
  const int64_t length = static_cast<int64_t>(prompt.size());
  live.skip(cache_.length(live.sequence()));
  model::TargetOutput output;
  int64_t last_row = 0;  // of the last chunk
  for (int64_t begin = cache_.length(live.sequence()), end; begin < length; begin = end) {
    end = std::min(length, begin + options_.prefill_chunk);
    last_row = end - begin - 1;
    model::RowBatch batch;
    for (int64_t i = begin; i < end; ++i)
      batch.add(prompt[i], live.sequence(), static_cast<int32_t>(i - begin) - 1);
    if (end == length) batch.wanted = {last_row};
    output = target_.forward(batch, cache_, drafting() ? drafter_->features() : model::FeatureTaps{});
    std::vector<int32_t> kept(end - begin);
    std::iota(kept.begin(), kept.end(), 0);
    cache_.keep(live.sequence(), kept, target_.config().layers);
    if (drafting()) prime_prompt(live, output.features, begin, std::min(end, length - 1));
  }
  // The drafter has not seen the last token, whose successor is not known yet.
  cache_.publish(live.sequence(), std::span(prompt).first(length - 1));
  const Accepted first = verify(CandidateTree::of_root(prompt.back()), output.logits, live, length);
  live.emit(first.tokens);
  if (drafting()) {
    const at::Tensor last = at::full({1}, last_row, at::kLong);
    live.remember(output.features.rows(last), {live.root()}, drafter_->kv_layers() == 0);
  }
  stats_.prompt_tokens += length;
  ++stats_.tokens;
  ++stats_.first_tokens;
}

/// The drafter's own layers read the prompt with the target, so that what is published holds them too.
void Engine::prime_prompt(LiveSequence& live, const model::Features& features, int64_t begin, int64_t end) {
  if (begin >= end) return;
  live.skip(end - begin);
  if (drafter_->kv_layers() == 0) return;
  const std::vector<int64_t>& prompt = live.request().prompt;
  std::vector<int64_t> next(prompt.begin() + begin + 1, prompt.begin() + end + 1);
  const model::Segment segment{live.sequence(), static_cast<int32_t>(begin),
                               static_cast<int32_t>(end - begin)};
  model::DraftKv kv{&cache_, target_.config().layers};
  drafter_->prime(features.rows(at::arange(end - begin, at::kLong)), ids_tensor(next), {&segment, 1},
                  at::empty({0}, at::kLong), &kv);
}

// Once, when it first matters what a row costs: a pass of few rows twice, for they are what is weighed most.
void Engine::calibrate() {
  if (calibrated_) return;
  calibrated_ = true;
  Timer timer(stats_.calibration_seconds);
  for (const int64_t rows : {1, 1, 2, 4, 8, 16, 32, 64, 1, 2, 4, 8}) {
    if (rows > options_.max_batch * 16) continue;
    const int32_t sequence = cache_.open();
    if (cache_.fits(sequence, rows)) {
      model::RowBatch batch;
      for (int64_t row = 0; row < rows; ++row) {
        batch.add(0, sequence, static_cast<int32_t>(row) - 1);
        batch.wanted.push_back(row);
      }
      double seconds = 0;
      {
        Timer pass(seconds);
        target_.forward(batch, cache_, drafting() ? drafter_->features() : model::FeatureTaps{});
      }
      costs_.observe_pass(rows, seconds);  // the very first one warms caches, which CostCurve allows for
    }
    cache_.keep(sequence, {}, target_.config().layers);
    cache_.close(sequence);
  }
}

// The last token of an answer is never read, and a guess beyond it could not be used.
int64_t Engine::longest_guess(const LiveSequence& live) const {
  const int64_t room = target_.config().context - 1 - cache_.length(live.sequence());
  return std::max<int64_t>(0, std::min(live.tokens_left() - 1, room));
}

GrowthLimit Engine::limit(const LiveSequence& live) const {
  const int64_t depth = std::min(drafter_->max_depth(), longest_guess(live));
  int64_t budget = most_tree_rows - 1 - (options_.suffix ? most_suffix_automatic : 0);
  if (options_.budget > 0) {
    budget = std::min(budget, options_.budget);
  } else if (options_.growth.policy == Policy::clover) {
    budget = 4;
  }
  return {depth > 0 ? budget : 0, depth};
}

model::DraftState Engine::prime() {
  std::vector<at::Tensor> pre_norm, post_norm;
  std::vector<int64_t> next_ids, frontier;
  std::vector<model::Segment> segments;
  for (const auto& live : live_) {
    LiveSequence::Pending pending = live->take_pending();
    pre_norm.push_back(pending.features.pre_norm);
    post_norm.push_back(pending.features.post_norm);
    next_ids.insert(next_ids.end(), pending.next_ids.begin(), pending.next_ids.end());
    segments.push_back({live->sequence(), pending.begin, static_cast<int32_t>(pending.next_ids.size())});
    frontier.push_back(static_cast<int64_t>(next_ids.size()) - 1);
  }
  model::DraftKv kv{&cache_, target_.config().layers};
  return drafter_->prime({joined(pre_norm), joined(post_norm)}, ids_tensor(next_ids), segments,
                         ids_tensor(frontier), &kv);
}

std::vector<CandidateTree> Engine::draft() {
  const bool automatic = options_.growth.policy == Policy::automatic;
  const bool with_heads = drafting() && (!automatic || costs_.worth_drafting(running()));
  std::vector<CandidateTree> trees;
  if (with_heads) {
    double seconds = 0;
    trees = draft_with_heads(seconds);
    if (automatic) costs_.observe_draft(running(), seconds);
  } else {
    for (const auto& live : live_) trees.push_back(CandidateTree::of_root(live->root()));
  }
  const bool grafted = options_.suffix && graft_suffixes(trees);
  if (automatic && grafted) calibrate();
  if (automatic) costs_.trim(trees, with_heads);
  return trees;
}

std::vector<CandidateTree> Engine::draft_with_heads(double& seconds) {
  std::vector<int64_t> roots;
  std::vector<GrowthLimit> limits;
  for (const auto& live : live_) {
    roots.push_back(live->root());
    limits.push_back(limit(*live));
  }
  Timer timer(seconds);
  model::DraftState state;
  {
    Timer priming(stats_.drafter_seconds);
    state = prime();
  }
  Timer growing(stats_.grow_seconds);
  GrowthRule rule = options_.growth;
  if (rule.policy == Policy::automatic) {
    // Wide where rows are cheap: what cannot pay for its row bounds growth, and `trim` decides on the rest.
    rule.least_joint = costs_.least_worth(running());
    rule.top_p = 0.95;
    rule.relative_cut = 0;
  }
  return grow(*drafter_, state, roots, rule, limits);
}

bool Engine::graft_suffixes(std::vector<CandidateTree>& trees) {
  Timer growing(stats_.grow_seconds);
  const bool automatic = options_.growth.policy == Policy::automatic;
  const int64_t most = automatic ? most_suffix_automatic : most_suffix_fixed;
  bool any = false;
  for (size_t i = 0; i < trees.size(); ++i) {
    const SuffixMatcher::Guess guess = live_[i]->suffix().guess(std::min(most, longest_guess(*live_[i])));
    any |= !guess.ids.empty();
    graft(trees[i], guess);
  }
  return any;
}

Accepted Engine::verify(const CandidateTree& tree, const at::Tensor& logits, const LiveSequence& live,
                        int64_t position) const {
  const Request& request = live.request();
  if (options_.typical && tree.size() > 1) {
    return verify_typical(tree, logits,
                          request.sampling.temperature > 0 ? request.sampling.temperature : 1.0);
  }
  return verify_match(tree, logits, request.sampling, request.random, position);
}

model::RowBatch Engine::rows_of(const std::vector<CandidateTree>& trees) const {
  model::RowBatch batch;
  for (size_t i = 0; i < trees.size(); ++i) {
    const int32_t base = static_cast<int32_t>(batch.size());
    for (int64_t node = 0; node < trees[i].size(); ++node) {
      const int32_t parent = trees[i].parent[node];
      batch.add(trees[i].ids[node], live_[i]->sequence(), parent < 0 ? -1 : base + parent);
    }
  }
  batch.wanted.resize(batch.size());
  std::iota(batch.wanted.begin(), batch.wanted.end(), 0);
  return batch;
}

void Engine::decode() {
  Timer timer(stats_.decode_seconds);
  const double calibrated = stats_.calibration_seconds;
  const std::vector<CandidateTree> trees = draft();
  stats_.decode_seconds -= stats_.calibration_seconds - calibrated;
  const model::RowBatch batch = rows_of(trees);
  double seconds = 0;
  model::TargetOutput output;
  {
    Timer pass(seconds);
    output = target_.forward(batch, cache_, drafting() ? drafter_->features() : model::FeatureTaps{});
  }
  stats_.target_seconds += seconds;
  if (options_.growth.policy == Policy::automatic) costs_.observe_pass(batch.size(), seconds);
  ++stats_.steps;
  stats_.rows += batch.size();

  Timer verifying(stats_.verify_seconds);
  int64_t base = 0;
  for (size_t i = 0; i < trees.size(); ++i) {
    settle(*live_[i], trees[i], output, base);
    base += trees[i].size();
  }
}

void Engine::settle(LiveSequence& live, const CandidateTree& tree, const model::TargetOutput& output,
                    int64_t base) {
  // The root sits at position `length`, so the first token decided here at the one after it.
  const Accepted accepted = verify(tree, output.logits.slice(0, base, base + tree.size()), live,
                                   cache_.length(live.sequence()) + 1);
  cache_.keep(live.sequence(), accepted.nodes, target_.config().layers);
  const int64_t taken = live.emit(accepted.tokens);
  live.count_pass(taken);
  ++stats_.passes;
  stats_.tokens += taken;
  if (static_cast<int64_t>(stats_.accepted_histogram.size()) < taken) stats_.accepted_histogram.resize(taken);
  ++stats_.accepted_histogram[taken - 1];
  if (tree.size() > 1) costs_.observe_tree(tree, accepted.nodes);
  if (!drafting() || live.finished()) return;
  std::vector<int64_t> index(accepted.nodes.begin(), accepted.nodes.end());
  for (int64_t& row : index) row += base;
  live.remember(output.features.rows(ids_tensor(index)), accepted.tokens, drafter_->kv_layers() == 0);
}

}  // namespace clover::infer
