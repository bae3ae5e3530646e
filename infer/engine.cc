#include "infer/engine.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "data/error.h"
#include "infer/interrupt.h"
#include "infer/machine.h"
#include "kernels/threads.h"
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
      decodes_(target, cache_, passes_, recorder_, drafting_.taps(), options_.typical),
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
  const kernels::OneTorchThread alone;  // LibTorch's operators have little to do in a step
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
  stats_.graphs_given_up = recorder_.gave_up();
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
    if (interrupted()) return;  // whoever asked for this step stops behind it
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
  if (begun_) {  // the wait below is for this pass, too, which is no part of reading
    double passing = 0;
    {
      const model::Timer timer(passing);
      begun_->arriving.there->wait();
    }
    stats_.decode_seconds += passing;
    stats_.prefill_seconds -= passing;
  }
  if (!live.answered()) {
    const Accepted first = verify(CandidateTree::of_root(tokens.back()),
                                  decodes_.judge(output.logits, live.request(), length), 0, live, length);
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

std::vector<Accepted> Engine::verify(const DecodePass& pass) const {
  std::vector<int64_t> base;  // of each tree's rows
  for (int64_t row = 0; const CandidateTree& tree : pass.trees)
    base.push_back(std::exchange(row, row + tree.size()));
  std::vector<Accepted> accepted(pass.trees.size());
  const auto decide = [&](int64_t begin, int64_t end) {
    // The root sits at position `context`, so the first token decided there is at the one after it.
    for (int64_t i = begin; i < end; ++i)
      accepted[i] = verify(pass.trees[i], pass.said, base[i], *pass.sequences[i], pass.contexts[i] + 1);
  };
  // To draw from a row of logits takes the CPU a quarter of a millisecond.
  if (pass.said.tokens.defined())
    decide(0, std::ssize(pass.trees));
  else
    kernels::share_out(std::ssize(pass.trees), 1, decide);
  return accepted;
}

std::vector<LiveSequence*> Engine::decoding() const {
  std::vector<LiveSequence*> all;
  for (const auto& live : schedule_.decoding()) all.push_back(live.get());
  return all;
}

/// The pass that the last step began, for those who are still there.  Who has joined since waits for the
/// next.
std::optional<DecodePass> Engine::take_begun_pass() {
  std::optional<DecodePass> pass = std::exchange(begun_, std::nullopt);
  if (!pass) return pass;
  std::vector<int64_t> rows;
  for (LiveSequence* live : decoding())
    if (const int64_t row = std::exchange(live->ahead().row, -1); row >= 0) rows.push_back(row);
  if (rows.empty()) return std::nullopt;
  if (rows.size() < pass->sequences.size()) decodes_.leave(*pass, rows);
  for (size_t i = 0; i < rows.size(); ++i)
    pass->trees[i] = CandidateTree::of_root(pass->sequences[i]->root());
  return pass;
}

DecodePass Engine::next_pass() {
  if (std::optional<DecodePass> begun = take_begun_pass()) {
    ++stats_.steps_ahead;
    return std::move(*begun);
  }
  const double calibrated = stats_.calibration_seconds;
  std::vector<LiveSequence*> sequences = decoding();
  std::vector<CandidateTree> trees = drafting_.propose(sequences);
  cut_to_room(trees);
  stats_.decode_seconds -= stats_.calibration_seconds - calibrated;
  return decodes_.begin(std::move(sequences), std::move(trees));
}

// A GPU goes on before the CPU knows what the target said: to the next drafts or, where nothing is guessed,
// to the next pass.
void Engine::begin_next(DecodePass& pass) {
  if (!decodes_.chooses_there()) return;
  const auto next = drafting_.begin_next(pass.sequences, pass.trees, pass.tokens, pass.output.features);
  if (next == Drafting::Next::drafts) pass.kept = DecodePass::Kept::moved;
  if (next == Drafting::Next::nothing) begin_next_pass(pass);
}

void Engine::begin_next_pass(DecodePass& pass) {
  const std::vector<LiveSequence*> all = decoding();
  const auto others = std::span(all).subspan(pass.sequences.size());  // who joined last
  if (!pass.plain() || drafting_.guesses_from_text(all)) return;
  std::vector<int64_t> rows;  // with those of the pass that is under way
  for (const LiveSequence* live : pass.sequences) rows.push_back(DecodePasses::goes_on(*live) ? 2 : 1);
  const bool any = !others.empty() || std::ranges::count(rows, 2) > 0;
  rows.resize(all.size(), 1);
  if (any && schedule_.room_for(rows)) begun_ = decodes_.begin_behind(pass, others);
}

void Engine::decode() {
  model::Timer timer(stats_.decode_seconds);
  const double recorded = recorder_.seconds();
  DecodePass pass = next_pass();
  begin_next(pass);
  decodes_.wait(pass);
  if (pass.kept == DecodePass::Kept::moved) drafting_.pass_is_over();
  stats_.target_seconds += pass.seconds;
  if (pass.typical) drafting_.observe_pass(pass.trees, pass.contexts, pass.seconds);
  stats_.bytes_read += weight_bytes_ + cache_.tokens() * kv_bytes_;
  ++stats_.steps;
  for (const CandidateTree& tree : pass.trees) stats_.rows += tree.size();

  stats_.decode_seconds -= recorder_.seconds() - recorded;

  model::Timer verifying(stats_.verify_seconds);
  settle(pass, verify(pass));
}

// What all sequences keep moves at once, and so do the features: on a GPU each would be launches of its own.
void Engine::settle(const DecodePass& pass, const std::vector<Accepted>& accepted) {
  std::vector<model::KvCache::Kept> kept;
  for (size_t i = 0; i < pass.trees.size(); ++i)
    kept.push_back({pass.sequences[i]->sequence(), accepted[i].nodes});
  if (pass.kept == DecodePass::Kept::moved)
    cache_.commit(kept);
  else if (pass.kept == DecodePass::Kept::nothing)
    cache_.keep(kept, target_.config().layers);

  std::vector<Drafting::Seen> seen;
  int64_t base = 0;
  for (size_t i = 0; i < pass.trees.size(); ++i) {
    LiveSequence& live = *pass.sequences[i];
    const int64_t taken = live.emit(accepted[i].tokens);
    if (taken > 0) {  // none where the target had nothing to say
      live.count_pass(taken);
      ++stats_.passes;
      stats_.tokens += taken;
      if (std::ssize(stats_.accepted_histogram) < taken) stats_.accepted_histogram.resize(taken);
      ++stats_.accepted_histogram[taken - 1];
    }
    drafting_.observe_tree(pass.trees[i], accepted[i].nodes);
    seen.push_back({&live, {accepted[i].nodes.begin(), accepted[i].nodes.end()}, accepted[i].tokens});
    for (int64_t& row : seen.back().rows) row += base;
    base += pass.trees[i].size();
  }
  drafting_.remember(pass.output.features, seen);
}

}  // namespace clover::infer
