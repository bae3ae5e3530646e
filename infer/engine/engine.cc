#include "infer/engine/engine.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "data/files/error.h"
#include "infer/engine/end_tokens.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "kernels/cpu/threads.h"
#include "model/graphs/timer.h"

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

// Rows of a pass beyond which more of them take as much longer: by then a CPU's products wait for its
// arithmetic, and a GPU's for a multiple of what it has in flight.  More would only keep those waiting who
// decode.
constexpr int64_t chunk_of_cpu = 256, chunk_of_gpu = 2048;

/// What fits into the memory that the cache has left, on a GPU.
int64_t default_prefill_chunk(const model::Target& target) {
  if (target.device().is_cpu()) return chunk_of_cpu;
  const model::TargetConfig& config = target.config();
  // Residual stream, queries and what layers and drafters make of them, in fp32 at most.
  const int64_t bytes_a_row = 4 * (6 * config.hidden + 2 * config.query_width() + config.intermediate);
  return std::clamp(free_memory(target.device()) / 4 / bytes_a_row, chunk_of_cpu, chunk_of_gpu);
}

}  // namespace

Engine::Engine(const model::Target& target, model::Drafter* drafter, const data::Tokenizer& tokenizer,
               EngineOptions options)
    : target_(target),
      options_(settled(options)),
      tokenizer_(tokenizer),
      end_ids_(options.end_ids ? *options.end_ids : default_end_ids(target.config(), tokenizer)),
      cache_(make_cache(target, drafter, options)),
      recorder_(target.device(), options.graphs),
      passes_(target, cache_, options.max_batch, recorder_),
      schedule_(cache_, options.max_batch),
      drafting_(target, drafter, cache_, passes_, recorder_, options_, stats_),
      decodes_(target, cache_, passes_, recorder_, drafting_.taps(), options_.typical),
      weight_bytes_(target.weight_bytes()),
      kv_bytes_(model::KvCache::bytes_per_page(target.kv_shape(0), 1)) {
  TORCH_CHECK(!drafter || drafter->frozen(), "Engine: the drafter must be frozen");
  if (options_.prefill_chunk <= 0) options_.prefill_chunk = default_prefill_chunk(target);
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
  if (request.controls) request.controls->check(target_.config().vocab);
  if (request.max_tokens < 1) throw InputError("max_tokens must be at least 1.");
  request.max_tokens = std::min(request.max_tokens, context - length);
  if (most_pages(request) > cache_.pages()) {
    throw InputError("The request may need " + std::to_string(most_pages(request) * options_.page_size) +
                     " tokens of keys and values, --kv-memory holds " +
                     std::to_string(cache_.pages() * options_.page_size) + "; raise it or lower max_tokens.");
  }
  schedule_.submit(std::make_unique<LiveSequence>(std::move(request), tokenizer_, end_ids_, options_.suffix));
}

std::vector<Completion> Engine::step() {
  // No gradients, nor what views and writes in place cost where there might be some: half of a small
  // operator.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const kernels::OneTorchThread alone;  // LibTorch's operators have little to do in a step
  schedule_.make_room();
  advance();
  stats_.shared_prompt_tokens = schedule_.shared_tokens();
  stats_.sent_away = schedule_.sent_away();
  stats_.graphs = recorder_.recorded();
  stats_.graph_seconds = recorder_.seconds();
  stats_.graph_bytes = recorder_.bytes();
  stats_.graphs_given_up = recorder_.gave_up();
  return collect();
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

// Guesses push nobody out of the cache: where room is scarce those of the youngest go.
void Engine::cut_to_room(std::vector<CandidateTree>& trees, std::span<const PromptChunk> chunks) const {
  std::vector<int64_t> rows;
  for (const CandidateTree& tree : trees) rows.push_back(tree.size());
  for (size_t i = trees.size(); i > 0 && !schedule_.room_for(rows, chunks); --i) {
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
    const bool draws = request.sampling.temperature > 0;
    Accepted accepted = verify_typical(tree, logits, draws ? request.sampling.temperature : 1.0);
    if (draws) {
      accepted.tokens.back() = typical_token(logits[accepted.nodes.back()], request.sampling, request.random,
                                             position + std::ssize(accepted.tokens) - 1);
    }
    return accepted;
  }
  return verify_match(tree, logits, request.sampling, request.random, position);
}

/// Of every tree, and behind them what follows each prompt that is read to its end.
std::vector<Accepted> Engine::verify(const DecodePass& pass) const {
  const CandidateTree alone = CandidateTree::of_root(0);
  struct Judged {
    const CandidateTree* tree;
    int64_t base;  // of its rows among those that the target spoke of
    const LiveSequence* live;
    int64_t position;  // of the first token decided
  };
  std::vector<Judged> all;
  int64_t base = 0;
  // The root sits at position `context`, so the first token decided there is at the one after it.
  for (size_t i = 0; i < pass.trees.size(); base += pass.trees[i++].size())
    all.push_back({&pass.trees[i], base, pass.sequences[i], pass.contexts[i] + 1});
  for (const PromptChunk& chunk : pass.chunks)
    if (chunk.last) all.push_back({&alone, base++, chunk.live, chunk.begin + chunk.rows});
  std::vector<Accepted> accepted(all.size());
  const auto decide = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      accepted[i] = verify(*all[i].tree, pass.said, all[i].base, *all[i].live, all[i].position);
  };
  // To draw from a row of logits takes the CPU a quarter of a millisecond.
  if (pass.said.tokens.defined())
    decide(0, std::ssize(all));
  else
    kernels::share_out(std::ssize(all), 1, decide);
  return accepted;
}

std::vector<LiveSequence*> Engine::decoding() const {
  std::vector<LiveSequence*> all;
  for (const auto& live : schedule_.decoding()) all.push_back(live.get());
  return all;
}

/// The pass that the last step began, for those who are still there.
std::optional<DecodePass> Engine::take_begun_pass() {
  std::optional<DecodePass> pass = std::exchange(begun_, std::nullopt);
  if (!pass) return pass;
  std::vector<int64_t> rows, chunks;
  for (LiveSequence* live : decoding())
    if (const int64_t row = std::exchange(live->ahead().row, -1); row >= 0) rows.push_back(row);
  for (size_t i = 0; i < pass->chunks.size(); ++i)
    if (std::exchange(pass->chunks[i].live->ahead().reading, false))
      chunks.push_back(static_cast<int64_t>(i));
  if (rows.empty() && chunks.empty()) return std::nullopt;
  if (rows.size() < pass->sequences.size() || chunks.size() < pass->chunks.size())
    decodes_.leave(*pass, rows, chunks);
  for (size_t i = 0; i < rows.size(); ++i)
    pass->trees[i] = CandidateTree::of_root(pass->sequences[i]->root());
  return pass;
}

DecodePass Engine::next_pass() {
  if (std::optional<DecodePass> begun = take_begun_pass()) {
    ++stats_.steps_ahead;
    return std::move(*begun);
  }
  std::vector<LiveSequence*> sequences = decoding();
  const std::vector<int64_t> roots(sequences.size(), 1);
  std::vector<PromptChunk> chunks = schedule_.next_chunks(options_.prefill_chunk, roots);
  std::vector<CandidateTree> trees;
  if (!sequences.empty()) trees = drafting_.propose(sequences);
  cut_to_room(trees, chunks);
  DecodePass pass = decodes_.begin(std::move(sequences), std::move(trees), std::move(chunks));
  take_in_chunks(pass);
  return pass;
}

// As soon as the pass has begun: what comes later, on a GPU too, finds the chunks in the cache.
void Engine::take_in_chunks(DecodePass& pass) {
  if (pass.chunks.empty()) return;
  const model::Timer timer(pass.taking_in);
  std::vector<int32_t> rows(pass.chunk_rows());  // each chunk's are a chain: nothing moves
  std::vector<model::KvCache::Kept> kept;
  for (const PromptChunk& chunk : pass.chunks)
    kept.push_back({chunk.live->sequence(), std::span(rows).first(chunk.rows)});
  cache_.commit(kept);
  drafting_.read(pass.chunks, pass.output.features, pass.tree_rows());
  decodes_.keep_features(pass);
}

// A GPU goes on before the CPU knows what the target said: to the next drafts or, where nothing is guessed,
// to the next pass.
void Engine::begin_next(DecodePass& pass) {
  if (!decodes_.chooses_there() || pass.trees.empty()) return;
  const int64_t rows = pass.tree_rows();
  const auto next = drafting_.begin_next(pass.sequences, pass.trees, pass.tokens.narrow(0, 0, rows),
                                         pass.output.features.slice(0, rows));
  if (next == Drafting::Next::drafts) pass.kept = DecodePass::Kept::moved;
  if (next == Drafting::Next::nothing) begin_next_pass(pass);
}

// Whoever has read its prompt is in the pass behind that, with a token that is not known yet.
void Engine::begin_next_pass(DecodePass& pass) {
  if (!pass.plain() || pass.ends_prompts() || drafting_.guesses_from_text(pass.sequences)) return;
  if (pass.controlled && std::ranges::any_of(pass.sequences, [](LiveSequence* live) {
        return live->controlled() && live->controlled()->follows_text();
      }))
    return;                   // what the next logits become hangs on that token
  std::vector<int64_t> rows;  // with those of the pass that is under way
  for (const LiveSequence* live : pass.sequences) rows.push_back(DecodePasses::goes_on(*live) ? 2 : 1);
  if (std::ranges::count(rows, 2) == 0 || !schedule_.room_for(rows)) return;
  begun_ = decodes_.begin_behind(pass, schedule_.next_chunks(options_.prefill_chunk, rows));
  take_in_chunks(*begun_);
}

// A row costs about the same whatever it is for, so a pass that does both counts for each by its rows.
void Engine::advance() {
  const double set_aside = recorder_.seconds() + stats_.calibration_seconds;
  double seconds = 0, reading = 0;
  bool decodes = false;
  {
    const model::Timer timer(seconds);
    DecodePass pass = next_pass();
    begin_next(pass);
    decodes_.wait(pass);
    if (pass.kept == DecodePass::Kept::moved) drafting_.pass_is_over();
    const int64_t rows = pass.tree_rows(), read = pass.chunk_rows();
    const double of_trees =
        static_cast<double>(rows) / static_cast<double>(std::max<int64_t>(1, rows + read));
    decodes = rows > 0;
    reading = pass.seconds * (1 - of_trees) + pass.taking_in;
    stats_.prompt_rows += read;
    stats_.prompt_passes += read > 0;
    if (decodes) observe(pass, of_trees);
    double settling = 0;
    {
      const model::Timer settled(settling);
      settle(pass, verify(pass));
    }
    if (decodes) stats_.verify_seconds += settling;
  }
  seconds -= recorder_.seconds() + stats_.calibration_seconds - set_aside;
  if (!decodes) reading = seconds;
  stats_.prefill_seconds += reading;
  stats_.decode_seconds += seconds - reading;
}

/// `share`: of the pass that is its trees'.
void Engine::observe(const DecodePass& pass, double share) {
  if (pass.typical) drafting_.observe_pass(pass.trees, pass.contexts, pass.seconds);
  stats_.target_seconds += share * pass.seconds;
  stats_.bytes_read +=
      static_cast<int64_t>(share * static_cast<double>(weight_bytes_ + cache_.tokens() * kv_bytes_));
  stats_.mixed_passes += !pass.chunks.empty();
  ++stats_.steps;
  stats_.rows += pass.tree_rows();
}

void Engine::settle(const DecodePass& pass, std::span<const Accepted> accepted) {
  std::vector<Drafting::Seen> seen;
  settle_trees(pass, accepted.first(pass.trees.size()), seen);
  settle_prompts(pass, accepted.subspan(pass.trees.size()), seen);
  drafting_.remember(pass.output.features, seen);
}

// What all sequences keep moves at once, and so do the features: on a GPU each would be launches of its own.
void Engine::settle_trees(const DecodePass& pass, std::span<const Accepted> accepted,
                          std::vector<Drafting::Seen>& seen) {
  std::vector<model::KvCache::Kept> kept;
  for (size_t i = 0; i < pass.trees.size(); ++i)
    kept.push_back({pass.sequences[i]->sequence(), accepted[i].nodes});
  if (pass.kept == DecodePass::Kept::moved)
    cache_.commit(kept);
  else if (pass.kept == DecodePass::Kept::nothing)
    cache_.keep(kept, target_.config().layers);

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
}

/// Who has been read to the end has its first token now, or has come back with those it had.
void Engine::settle_prompts(const DecodePass& pass, std::span<const Accepted> accepted,
                            std::vector<Drafting::Seen>& seen) {
  const int64_t rows = pass.tree_rows();
  int64_t read = 0;
  for (const PromptChunk& chunk : pass.chunks) {
    if (!chunk.last) continue;
    LiveSequence& live = *chunk.live;
    // Others share what drafters have read, too, once it is known to be numbers: on a GPU what is none also
    // spoils rows before it.
    const std::span<const int64_t> ids = live.to_read();
    if (accepted[read].tokens.front() >= 0) cache_.publish(live.sequence(), ids.first(ids.size() - 1));
    if (!live.answered()) {
      const int64_t taken = live.emit(accepted[read].tokens);
      stats_.prompt_tokens += chunk.begin + chunk.rows;
      stats_.tokens += taken;
      stats_.first_tokens += taken;
    }
    if (!live.finished()) seen.push_back({&live, {rows + read}, {live.root()}});
    schedule_.joined(live);
    ++read;
  }
}

}  // namespace clover::infer
