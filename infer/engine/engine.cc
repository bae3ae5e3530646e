#include "infer/engine/engine.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <utility>

#include "data/files/error.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/machine.h"
#include "kernels/cpu/threads.h"
#include "model/graphs/timer.h"

namespace clover::infer {
namespace {

using data::InputError;

model::KvCache make_cache(const model::Target& target, const model::Drafter* drafter,
                          const EngineOptions& options) {
  const bool drafts = drafter != nullptr && growth_policy(options.growth.policy).drafts;
  const model::KvShape shape = target.kv_shape(drafts ? drafter->kv_layers() : 0);
  const int64_t page_bytes = model::KvCache::bytes_per_page(shape, options.page_size);
  const int64_t memory = options.kv_memory > 0 ? options.kv_memory : default_cache_bytes(shape.device);
  const int64_t pages_of_longest = (target.config().context + max_tree_rows) / options.page_size + 1;
  // A full batch of the longest sequences can use no more.
  int64_t pages = std::min(memory / page_bytes, options.max_batch * pages_of_longest);
  // Without --kv-memory one sequence of full length always fits, so that the memory that happens to be free
  // does not decide whether a request can be answered.
  if (options.kv_memory <= 0) pages = std::max(pages, pages_of_longest);
  if (pages < 1) {
    throw InputError("--kv-memory " + std::to_string(memory) +
                     " holds no page of keys and values: one page of " + std::to_string(options.page_size) +
                     " tokens takes " + std::to_string(page_bytes) + " bytes; give more memory.");
  }
  return model::KvCache(shape, pages, options.page_size);
}

/// `options` made consistent: budget 0 is plain decoding, which copies no guesses from the text either.
EngineOptions make_consistent(EngineOptions options) {
  if (options.budget == 0) options.growth.policy = plain_policy;
  if (!growth_policy(options.growth.policy).drafts) options.suffix = false;
  return options;
}

// Default prefill tokens per pass.  Above max_chunk rows a pass is bound by arithmetic: its time grows in
// proportion to its rows, so more of them would only make the decoding sequences wait.
constexpr int64_t min_chunk = 256, max_chunk = 2048;

/// EngineOptions::prefill_chunk 0: on a CPU min_chunk; on a GPU, between min_chunk and max_chunk, the rows
/// that fit into a quarter of the memory that is free beside the KV cache.
int64_t default_prefill_chunk(const model::Target& target) {
  if (target.device().is_cpu()) return min_chunk;
  const model::TargetConfig& config = target.config();
  // An estimate of a row's activations in fp32: residual stream, queries, MLP, and those of the drafter.
  const int64_t bytes_per_row = 4 * (6 * config.hidden + 2 * config.query_width() + config.intermediate);
  return std::clamp(free_memory(target.device()) / 4 / bytes_per_row, min_chunk, max_chunk);
}

/// The share of a pass's time that counts for its trees.  A row of a tree and one of a prompt take about the
/// same time.
double share_of_trees(const DecodePass& pass) {
  return static_cast<double>(pass.tree_rows()) /
         static_cast<double>(std::max<int64_t>(1, pass.tree_rows() + pass.chunk_rows()));
}

}  // namespace

Engine::Engine(const model::Target& target, model::Drafter* drafter, const data::Tokenizer& tokenizer,
               EngineOptions options)
    : target_(target),
      options_(make_consistent(options)),
      tokenizer_(tokenizer),
      end_ids_(options.end_ids ? *options.end_ids : default_end_ids(target.config(), tokenizer)),
      cache_(make_cache(target, drafter, options_)),
      graph_runner_(target.device(), options.graphs),
      pass_graphs_(target, cache_, options.max_batch, graph_runner_),
      scheduler_(cache_, options.max_batch),
      drafting_(target, drafter, cache_, pass_graphs_, graph_runner_, options_, stats_),
      pass_runner_(target, cache_, pass_graphs_, graph_runner_, drafting_.taps(), options_),
      run_ahead_(drafting_, pass_runner_, scheduler_, cache_, options_, stats_),
      weight_bytes_(target.weight_bytes()),
      kv_bytes_per_token_(model::KvCache::bytes_per_page(target.kv_shape(0), 1)) {
  TORCH_CHECK(!drafter || drafter->frozen(), "Engine: the drafter must be frozen");
  if (options_.prefill_chunk <= 0) options_.prefill_chunk = default_prefill_chunk(target);
}

/// request.max_tokens is cut to the context already.
void Engine::check_recorded(const Request& request) const {
  TORCH_CHECK(!options_.typical && !growth_policy(options_.growth.policy).uses_cost_model,
              "Engine: recorded answers need exact verification and a policy other than auto");
  TORCH_CHECK(request.recorded && request.sampling.temperature == 0 && !request.controls,
              "Engine: expected a greedy request with its answer, without controls");
  const RecordedAnswer& recorded = *request.recorded;
  const int64_t rows = std::ssize(request.prompt) + std::ssize(recorded.token_ids);
  TORCH_CHECK(!recorded.token_ids.empty() &&
                  (std::ssize(recorded.token_ids) >= request.max_tokens ||
                   std::ranges::find(end_ids_, recorded.token_ids.back()) != end_ids_.end()),
              "Engine: expected a complete answer, found ", recorded.token_ids.size(), " tokens");
  const model::FeatureTaps taps = drafting_.taps();
  const model::Features& features = recorded.features;
  const std::pair<bool, const at::Tensor&> read[] = {{taps.pre_norm, features.pre_norm},
                                                     {taps.post_norm, features.post_norm},
                                                     {!taps.layers.empty(), features.layers}};
  for (const auto& [is_read, tensor] : read)
    TORCH_CHECK(!is_read || (tensor.defined() && tensor.size(0) >= rows), "Engine: expected features of ",
                rows, " rows of prompt and answer");
}

int64_t Engine::max_pages(const Request& request) const {
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
  if (request.controls) request.controls->check(target_.config().vocab);
  if (request.max_tokens < 1) throw InputError("max_tokens must be at least 1.");
  request.max_tokens = std::min(request.max_tokens, context - length);
  if (options_.recorded_answers) check_recorded(request);
  if (max_pages(request) > cache_.pages()) {
    throw InputError("The request may need " + std::to_string(max_pages(request) * options_.page_size) +
                     " tokens of keys and values, --kv-memory holds " +
                     std::to_string(cache_.pages() * options_.page_size) + "; raise it or lower max_tokens.");
  }
  scheduler_.submit(
      std::make_unique<LiveSequence>(std::move(request), tokenizer_, end_ids_, options_.suffix));
}

std::vector<Completion> Engine::step() {
  // LibTorch's bookkeeping for autograd, in-place operators and views takes half of a small operator's time.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const kernels::OneTorchThread one_thread;  // LibTorch's operators have little to do in a step
  const double excluded_before = graph_runner_.seconds() + stats_.calibration_seconds;
  double seconds = 0;
  std::optional<DecodePass> pass;
  {
    const model::Timer timer(seconds);
    pass = decode();
  }
  count_seconds(*pass, seconds - (graph_runner_.seconds() + stats_.calibration_seconds - excluded_before));
  stats_.shared_prompt_tokens = scheduler_.shared_tokens();
  stats_.preemptions = scheduler_.preemptions();
  stats_.graphs = graph_runner_.graph_count();
  stats_.graph_seconds = graph_runner_.seconds();
  stats_.graph_bytes = graph_runner_.bytes();
  stats_.graphs_given_up = graph_runner_.capture_failed();
  return collect();
}

/// One decoding step (docs/architecture.md).  On a GPU the previous step may have launched the draft, which
/// stage 2 then waits for, or the pass with what it prefills, so that stages 2 to 4 are left out (RunAhead).
DecodePass Engine::decode() {
  // 1. Schedule: the sequences that decode, and what is prefilled beside them.
  scheduler_.preempt_for_room();
  std::vector<LiveSequence*> sequences = decoding();
  std::optional<DecodePass> pass = run_ahead_.take_pass(sequences);
  if (pass) {
    ++stats_.steps_ahead;
  } else {
    std::vector<PrefillChunk> chunks =
        scheduler_.next_prefill_chunks(options_.prefill_chunk, std::vector<int64_t>(sequences.size(), 1));
    // 2. Draft: the heads' guesses and those from the text, as one tree a sequence.
    std::vector<CandidateTree> trees = draft(sequences);
    // 3. Cut the trees to the pages that are free.
    cut_to_room(trees, chunks);
    // 4. Launch the target's pass over trees and chunks.
    pass = pass_runner_.begin(std::move(sequences), std::move(trees), std::move(chunks));
    commit_prefill(*pass);
  }
  // 5. Launch what a GPU can begin of the next step before the CPU knows the tokens of this one.
  if (DecodePass* next = run_ahead_.begin(*pass)) commit_prefill(*next);
  // 6. Wait for the target's tokens.
  pass_runner_.wait(*pass);
  run_ahead_.pass_done();
  count_step(*pass);
  {
    double ignored_seconds = 0;  // a step without trees counts as prefill altogether (count_seconds)
    const model::Timer timer(pass->trees.empty() ? ignored_seconds : stats_.verify_seconds);
    // 7. Verify: follow the target's tokens from each tree's root on for as long as the tree holds them.
    const std::vector<AcceptedPath> accepted = verify(*pass);
    // 8. Commit the accepted rows to the cache, their tokens to the answers.
    commit(*pass, accepted);
  }
  return std::move(*pass);
}

std::vector<LiveSequence*> Engine::decoding() const {
  std::vector<LiveSequence*> sequences;
  for (const auto& live : scheduler_.decoding()) sequences.push_back(live.get());
  return sequences;
}

std::vector<CandidateTree> Engine::draft(Sequences sequences) {
  std::vector<CandidateTree> trees;
  if (sequences.empty()) return trees;
  for (const LiveSequence* live : sequences) trees.push_back(CandidateTree::of_root(live->root()));
  const DraftChoice choice = run_ahead_.take_draft(sequences, trees);
  drafting_.propose(sequences, choice, trees);
  if (options_.recorded_answers) {
    for (size_t i = 0; i < trees.size(); ++i) trees[i] = trees[i].path_along(sequences[i]->recorded_tokens());
  }
  return trees;
}

// Guesses never cause a preemption: where pages are scarce, trees are cut to their roots.  The sequence that
// began to decode last is the first to lose its guesses.
void Engine::cut_to_room(std::vector<CandidateTree>& trees, std::span<const PrefillChunk> chunks) const {
  std::vector<int64_t> rows;
  for (const CandidateTree& tree : trees) rows.push_back(tree.size());
  for (size_t i = trees.size(); i > 0 && !scheduler_.has_room_for(rows, chunks); --i) {
    rows[i - 1] = 1;
    trees[i - 1] = CandidateTree::of_root(trees[i - 1].ids[0]);
  }
}

// The rows count as committed as soon as the pass is launched: the device works in the order of launches.
void Engine::commit_prefill(DecodePass& pass) {
  if (pass.chunks.empty()) return;
  const model::Timer timer(pass.prefill_seconds);
  // KvCache::commit only reads how many rows there are: those of a chunk are in their final slots already.
  std::vector<int32_t> rows(pass.chunk_rows());
  std::vector<model::KvCache::KeptRows> kept;
  for (const PrefillChunk& chunk : pass.chunks)
    kept.push_back({chunk.live->seq_id(), std::span(rows).first(chunk.rows)});
  cache_.commit(kept);
  drafting_.prefill(pass.chunks, pass.output.features, pass.tree_rows());
  pass_runner_.copy_wanted_features(pass);
}

/// The accepted path of one tree.  `base`: the first of its rows in `target`; `position`: of the token after
/// its root.
AcceptedPath Engine::verify(const CandidateTree& tree, const TargetTokens& target, int64_t base,
                            const LiveSequence& live, int64_t position) const {
  const Request& request = live.request();
  if (target.tokens.defined()) {
    return verify_chosen(tree,
                         {target.tokens.const_data_ptr<int64_t>() + base, static_cast<size_t>(tree.size())});
  }
  const at::Tensor logits = target.logits.slice(0, base, base + tree.size());
  // At temperature 0 the rule allows only the arg-max, as `match` does.
  if (options_.typical && request.sampling.temperature > 0 && tree.size() > 1) {
    AcceptedPath accepted = verify_typical(tree, logits, request.sampling.temperature);
    accepted.tokens.back() = typical_token(logits[accepted.nodes.back()], request.sampling, request.random,
                                           position + std::ssize(accepted.tokens) - 1);
    return accepted;
  }
  return verify_match(tree, logits, request.sampling, request.random, position);
}

/// [S + E] the accepted path of each of S trees, then the first token of each of E prompts that end.
std::vector<AcceptedPath> Engine::verify(const DecodePass& pass) const {
  const CandidateTree bare_root = CandidateTree::of_root(0);
  struct ToVerify {
    const CandidateTree* tree;
    int64_t base;  // index of its first row in pass.target_tokens
    const LiveSequence* live;
    int64_t position;  // of the token after the root
  };
  std::vector<ToVerify> to_verify;
  int64_t base = 0;
  // The root of tree i is at position context_lengths[i].
  for (size_t i = 0; i < pass.trees.size(); base += pass.trees[i++].size())
    to_verify.push_back({&pass.trees[i], base, pass.sequences[i], pass.context_lengths[i] + 1});
  for (const PrefillChunk& chunk : pass.chunks)
    if (chunk.last) to_verify.push_back({&bare_root, base++, chunk.live, chunk.begin + chunk.rows});
  std::vector<AcceptedPath> accepted(to_verify.size());
  const auto verify_range = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ToVerify& item = to_verify[i];
      accepted[i] = verify(*item.tree, pass.target_tokens, item.base, *item.live, item.position);
    }
  };
  // Where tokens are not sampled yet, sampling takes a quarter of a millisecond per row, so threads share it.
  if (pass.target_tokens.tokens.defined())
    verify_range(0, std::ssize(to_verify));
  else
    kernels::parallel_for(std::ssize(to_verify), 1, verify_range);
  return accepted;
}

void Engine::commit(const DecodePass& pass, std::span<const AcceptedPath> accepted) {
  std::vector<Drafting::AcceptedRows> rows;
  commit_trees(pass, accepted.first(pass.trees.size()), rows);
  finish_prefills(pass, accepted.subspan(pass.trees.size()), rows);
  drafting_.add_pending_rows(pass.output.features, rows, run_ahead_.drafted_sequences());
}

/// Commits the accepted rows of all trees and emits their tokens.  One kernel moves the rows of all
/// sequences. Adds the accepted rows to `rows`.
void Engine::commit_trees(const DecodePass& pass, std::span<const AcceptedPath> accepted,
                          std::vector<Drafting::AcceptedRows>& rows) {
  std::vector<model::KvCache::KeptRows> kept;
  for (size_t i = 0; i < pass.trees.size(); ++i)
    kept.push_back({pass.sequences[i]->seq_id(), accepted[i].nodes});
  if (pass.commit_state == CommitState::compacted)
    cache_.commit(kept);
  else if (pass.commit_state == CommitState::pending)
    cache_.keep_rows(kept, target_.config().layers);

  int64_t base = 0;
  for (size_t i = 0; i < pass.trees.size(); ++i) {
    LiveSequence& live = *pass.sequences[i];
    const int64_t taken = live.emit(accepted[i].tokens);
    if (taken > 0) {  // 0 if no token can be chosen (TargetTokens)
      live.count_pass(taken);
      ++stats_.passes;  // once for each sequence
      stats_.tokens += taken;
      if (std::ssize(stats_.accepted_histogram) < taken) stats_.accepted_histogram.resize(taken);
      ++stats_.accepted_histogram[taken - 1];
    }
    drafting_.observe_tree(pass.trees[i], accepted[i].nodes);
    rows.push_back({&live, {accepted[i].nodes.begin(), accepted[i].nodes.end()}, accepted[i].tokens});
    for (int64_t& row : rows.back().rows) row += base;
    base += pass.trees[i].size();
  }
}

/// Emits the first token of each sequence whose prompt ends in this pass, unless it was preempted while it
/// decoded: then it emitted that token before.  Adds the last row of each such prompt, unless its answer is
/// finished, to `rows`, as an index into pass.output.features.  Since commit_prefill those hold wanted_rows()
/// alone: all rows of trees, then the last row of each prompt that ends.
void Engine::finish_prefills(const DecodePass& pass, std::span<const AcceptedPath> accepted,
                             std::vector<Drafting::AcceptedRows>& rows) {
  const int64_t tree_rows = pass.tree_rows();
  int64_t ended_prompts = 0;
  for (const PrefillChunk& chunk : pass.chunks) {
    if (!chunk.last) continue;
    LiveSequence& live = *chunk.live;
    // Without a token (-1: NaN logits, or all tokens banned) nothing is published: other sequences would
    // share keys and values that may be NaN.
    const std::span<const int64_t> ids = live.prefill_tokens();
    // All but the last row are published: the drafter reads that one with the token that follows it.
    if (accepted[ended_prompts].tokens.front() >= 0) cache_.publish(live.seq_id(), ids.first(ids.size() - 1));
    if (!live.has_answer()) {
      const int64_t taken = live.emit(accepted[ended_prompts].tokens);
      stats_.prompt_tokens += chunk.begin + chunk.rows;
      stats_.tokens += taken;
      stats_.first_tokens += taken;
    }
    if (!live.finished()) rows.push_back({&live, {tree_rows + ended_prompts}, {live.root()}});
    scheduler_.prefill_done(live);
    ++ended_prompts;
  }
}

std::vector<Completion> Engine::collect() {
  if (on_text_) {
    for (const auto& live : scheduler_.decoding()) {
      if (const std::string text = live->take_text(); !text.empty()) on_text_(live->request().tag, text);
    }
  }
  std::vector<Completion> completions;
  for (const auto& finished : scheduler_.take_finished()) {
    drafting_.add_finished_answer(*finished);
    completions.push_back(finished->take_completion());
  }
  stats_.requests += std::ssize(completions);
  return completions;
}

void Engine::count_step(const DecodePass& pass) {
  stats_.prompt_rows += pass.chunk_rows();
  stats_.prompt_passes += !pass.chunks.empty();
  if (pass.trees.empty()) return;
  if (pass.representative) drafting_.observe_pass(pass.trees, pass.context_lengths, pass.seconds);
  const double share = share_of_trees(pass);
  stats_.target_seconds += share * pass.seconds;
  stats_.bytes_read += static_cast<int64_t>(
      share * static_cast<double>(weight_bytes_ + cache_.tokens() * kv_bytes_per_token_));
  stats_.mixed_passes += !pass.chunks.empty();
  ++stats_.steps;
  stats_.rows += pass.tree_rows();
}

/// `seconds`: of the whole step, without calibration and graph capture.
void Engine::count_seconds(const DecodePass& pass, double seconds) {
  const double prefill =
      pass.trees.empty() ? seconds : pass.seconds * (1 - share_of_trees(pass)) + pass.prefill_seconds;
  stats_.prefill_seconds += prefill;
  stats_.decode_seconds += seconds - prefill;
}

}  // namespace clover::infer
