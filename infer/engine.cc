#include "infer/engine.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "data/error.h"
#include "infer/machine.h"
#include "kernels/gpu.h"
#include "kernels/top_k.h"
#include "model/timer.h"

namespace clover::infer {
namespace {

using data::InputError;

model::KvCache make_cache(const model::Target& target, const model::Drafter* drafter,
                          const EngineOptions& options) {
  const model::KvShape shape = target.kv_shape(drafter ? drafter->kv_layers() : 0);
  const int64_t page_bytes = model::KvCache::bytes_per_page(shape, options.page_size);
  const int64_t memory = options.kv_memory > 0 ? options.kv_memory : memory_for_cache(shape.device);
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

EngineOptions settled(EngineOptions options) {
  if (options.budget == 0) options.growth.policy = Policy::off;
  if (options.growth.policy == Policy::off) options.suffix = false;
  return options;
}

/// Adds what the token after each node is drawn with; `position`: of the root's successor.
void add_rules(const CandidateTree& tree, const Request& request, int64_t position,
               std::vector<kernels::RowRule>& rules) {
  const auto& [temperature, top_p, top_k] = request.sampling;
  for (const int32_t depth : tree.depth) {
    const double uniform = temperature > 0 ? uniform_at(request.random, position + depth) : 0;
    rules.push_back({temperature, top_p, static_cast<double>(top_k), uniform});
  }
}

}  // namespace

Engine::Engine(const model::Target& target, model::Drafter* drafter, const data::Tokenizer& tokenizer,
               EngineOptions options)
    : target_(target),
      options_(settled(options)),
      tokenizer_(tokenizer),
      cache_(make_cache(target, drafter, options)),
      recorder_(target.device(), options.graphs),
      passes_(target, cache_, options.max_batch, recorder_),
      schedule_(cache_, options.max_batch),
      drafting_(target, drafter, cache_, passes_, recorder_, options_, stats_),
      weight_bytes_(target.weight_bytes()),
      kv_bytes_(model::KvCache::bytes_per_page(target.kv_shape(0), 1)) {
  TORCH_CHECK(!drafter || drafter->frozen(), "Engine: the drafter must be frozen");
}

int64_t Engine::most_pages(const Request& request) const {
  const int64_t tokens = static_cast<int64_t>(request.prompt.size()) + request.max_tokens;
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
  schedule_.submit(std::make_unique<LiveSequence>(std::move(request), tokenizer_, target_.config().end_ids,
                                                  options_.suffix));
}

std::vector<Completion> Engine::step() {
  // No gradients, nor what views and writes in place cost where there might be some: half of a small
  // operator.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  join();
  // A first token can end an answer: such a sequence takes no part in decoding.
  std::vector<Completion> completions = collect();
  schedule_.make_room();
  if (!schedule_.decoding().empty()) {
    decode();
    for (Completion& completion : collect()) completions.push_back(std::move(completion));
  }
  stats_.shared_prompt_tokens = schedule_.shared_tokens();
  stats_.sent_away = schedule_.sent_away();
  stats_.graphs = recorder_.recorded();
  stats_.graph_seconds = recorder_.seconds();
  stats_.graph_bytes = recorder_.bytes();
  return completions;
}

std::vector<Completion> Engine::collect() {
  if (on_text_) {
    for (const auto& live : schedule_.decoding()) {
      if (const std::string text = live->take_text(); !text.empty()) on_text_(live->request().tag, text);
    }
  }
  std::vector<Completion> completions;
  for (const auto& finished : schedule_.take_finished()) {
    drafting_.finished(*finished);
    completions.push_back(finished->take_completion());
  }
  stats_.requests += std::ssize(completions);
  return completions;
}

// Those that decode wait for one chunk at most; while none does, reading all of them first fills the batch.
void Engine::join() {
  model::Timer timer(stats_.prefill_seconds);
  int64_t left = schedule_.decoding().empty() ? std::numeric_limits<int64_t>::max() : options_.prefill_chunk;
  while (left > 0) {
    const int64_t most = std::min(left, options_.prefill_chunk);
    LiveSequence* joining = schedule_.joining(most);
    if (joining == nullptr) return;
    left -= read(*joining, most);
  }
}

/// One pass over the next tokens of a sequence that joins, at most `most`; returns how many.
int64_t Engine::read(LiveSequence& live, int64_t most) {
  const std::span<const int64_t> tokens = live.to_read();
  const int64_t begin = cache_.length(live.sequence()), length = std::ssize(tokens);
  const int64_t end = std::min(length, begin + most);
  model::RowBatch batch;
  for (int64_t i = begin; i < end; ++i)
    batch.add(tokens[i], live.sequence(), static_cast<int32_t>(i - begin) - 1);
  if (end == length && !live.answered()) batch.wanted = {end - begin - 1};
  const model::TargetOutput output = passes_.forward(batch, drafting_.taps());
  std::vector<int32_t> kept(end - begin);
  std::iota(kept.begin(), kept.end(), 0);
  cache_.keep(live.sequence(), kept, target_.config().layers);
  drafting_.read(live, output.features, begin, std::min(end, length - 1));
  if (end == length) finish_reading(live, output, end - begin - 1);
  return end - begin;
}

void Engine::finish_reading(LiveSequence& live, const model::TargetOutput& output, int64_t last_row) {
  const std::span<const int64_t> tokens = live.to_read();
  const int64_t length = std::ssize(tokens);
  cache_.publish(live.sequence(), tokens.first(length - 1));  // drafters have read so many
  if (!live.answered()) {
    const CandidateTree root = CandidateTree::of_root(tokens.back());
    std::vector<kernels::RowRule> rules;
    if (chooses_there()) add_rules(root, live.request(), length, rules);
    const Accepted first = verify(root, verdict(output.logits, std::move(rules)), 0, live, length);
    const int64_t taken = live.emit(first.tokens);
    stats_.prompt_tokens += length;
    stats_.tokens += taken;
    stats_.first_tokens += taken;
  }
  if (!live.finished()) {
    Drafting::Seen seen{&live, {last_row}, {live.root()}};
    drafting_.remember(output.features, {&seen, 1});
  }
  schedule_.joined();
}

// Guesses push nobody out of the cache: where room is scarce those of the youngest go.
void Engine::cut_to_room(std::vector<CandidateTree>& trees) const {
  std::vector<int64_t> rows;
  for (const CandidateTree& tree : trees) rows.push_back(tree.size());
  for (size_t i = trees.size(); i > 0 && !schedule_.room_for(rows); --i) {
    rows[i - 1] = 1;
    trees[i - 1] = CandidateTree::of_root(trees[i - 1].ids[0]);
  }
}

at::Tensor Engine::chosen(const at::Tensor& logits, std::vector<kernels::RowRule> rules) {
  const bool greedy =
      std::all_of(rules.begin(), rules.end(), [](const auto& rule) { return rule.temperature == 0; });
  if (greedy) return kernels::arg_max(logits);
  const at::Tensor here = at::from_blob(rules.data(), {std::ssize(rules), 4}, at::kDouble);
  return kernels::sample(logits, kernels::to_device(here, logits.device()));
}

Engine::Verdict Engine::verdict(const at::Tensor& logits, std::vector<kernels::RowRule> rules) const {
  if (!chooses_there()) return {kernels::to_host({logits})[0], {}};
  return {{}, kernels::to_host({chosen(logits, std::move(rules))})[0]};
}

/// `base`: of the tree's rows in the pass.
Accepted Engine::verify(const CandidateTree& tree, const Verdict& verdict, int64_t base,
                        const LiveSequence& live, int64_t position) const {
  const Request& request = live.request();
  if (verdict.tokens.defined()) {
    return verify_chosen(tree,
                         {verdict.tokens.const_data_ptr<int64_t>() + base, static_cast<size_t>(tree.size())});
  }
  const at::Tensor logits = verdict.logits.slice(0, base, base + tree.size());
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
      batch.add(trees[i].ids[node], schedule_.decoding()[i]->sequence(), parent < 0 ? -1 : base + parent);
    }
  }
  batch.wanted.resize(batch.size());
  std::iota(batch.wanted.begin(), batch.wanted.end(), 0);
  return batch;
}

std::vector<kernels::RowRule> Engine::rules_of(const std::vector<CandidateTree>& trees) const {
  std::vector<kernels::RowRule> rules;
  for (size_t i = 0; i < trees.size(); ++i) {
    const LiveSequence& live = *schedule_.decoding()[i];
    add_rules(trees[i], live.request(), next_position(live), rules);
  }
  return rules;
}

Engine::Judged Engine::run_pass(const std::vector<CandidateTree>& trees) {
  if (chooses_there()) return run_pass_there(trees);
  Judged pass;
  const model::Timer timer(pass.seconds);
  pass.output = passes_.forward(rows_of(trees), drafting_.taps());
  pass.said = verdict(pass.output.logits, {});
  return pass;
}

// A GPU follows its tokens itself and goes on to the next drafts; the CPU waits for the tokens only, and is
// busy with them meanwhile.
Engine::Judged Engine::run_pass_there(const std::vector<CandidateTree>& trees) {
  Judged pass;
  const auto begin = kernels::mark(target_.device());
  pass.output = passes_.forward(rows_of(trees), drafting_.taps());
  const at::Tensor tokens = chosen(pass.output.logits, rules_of(trees));
  const kernels::Arriving arriving = kernels::begin_to_host(tokens);
  pass.drafted = drafting_.begin_next(schedule_.decoding(), trees, tokens, pass.output.features);
  pass.said.tokens = arriving.wait();
  pass.seconds = arriving.there->seconds_since(*begin);
  if (pass.drafted) drafting_.pass_is_over();
  return pass;
}

std::vector<Accepted> Engine::verify(const std::vector<CandidateTree>& trees, const Verdict& said) const {
  std::vector<int64_t> base;  // of each tree's rows
  for (int64_t row = 0; const CandidateTree& tree : trees)
    base.push_back(std::exchange(row, row + tree.size()));
  std::vector<Accepted> accepted(trees.size());
  const auto decide = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const LiveSequence& live = *schedule_.decoding()[i];
      accepted[i] = verify(trees[i], said, base[i], live, next_position(live));
    }
  };
  // To draw from a row of logits takes the CPU a quarter of a millisecond.
  if (said.tokens.defined())
    decide(0, std::ssize(trees));
  else
    at::parallel_for(0, std::ssize(trees), 1, decide);
  return accepted;
}

void Engine::decode() {
  model::Timer timer(stats_.decode_seconds);
  const double calibrated = stats_.calibration_seconds;
  std::vector<CandidateTree> trees = drafting_.propose(schedule_.decoding());
  cut_to_room(trees);
  stats_.decode_seconds -= stats_.calibration_seconds - calibrated;
  const Judged pass = run_pass(trees);
  stats_.target_seconds += pass.seconds;
  if (passes_.settled()) drafting_.observe_pass(schedule_.decoding(), trees, pass.seconds);
  stats_.bytes_read += weight_bytes_ + cache_.tokens() * kv_bytes_;
  ++stats_.steps;
  for (const CandidateTree& tree : trees) stats_.rows += tree.size();

  model::Timer verifying(stats_.verify_seconds);
  settle(trees, verify(trees, pass.said), pass);
}

// What all sequences keep moves at once, and so do the features: on a GPU each would be launches of its own.
void Engine::settle(const std::vector<CandidateTree>& trees, const std::vector<Accepted>& accepted,
                    const Judged& pass) {
  std::vector<model::KvCache::Kept> kept;
  for (size_t i = 0; i < trees.size(); ++i)
    kept.push_back({schedule_.decoding()[i]->sequence(), accepted[i].nodes});
  if (pass.drafted)
    cache_.commit(kept);
  else
    cache_.keep(kept, target_.config().layers);

  std::vector<Drafting::Seen> seen;
  int64_t base = 0;
  for (size_t i = 0; i < trees.size(); ++i) {
    LiveSequence& live = *schedule_.decoding()[i];
    const int64_t taken = live.emit(accepted[i].tokens);
    if (taken > 0) {  // none where the target had nothing to say
      live.count_pass(taken);
      ++stats_.passes;
      stats_.tokens += taken;
      if (std::ssize(stats_.accepted_histogram) < taken) stats_.accepted_histogram.resize(taken);
      ++stats_.accepted_histogram[taken - 1];
    }
    drafting_.observe_tree(trees[i], accepted[i].nodes);
    seen.push_back({&live, {accepted[i].nodes.begin(), accepted[i].nodes.end()}, accepted[i].tokens});
    for (int64_t& row : seen.back().rows) row += base;
    base += trees[i].size();
  }
  drafting_.remember(pass.output.features, seen);
}

}  // namespace clover::infer
