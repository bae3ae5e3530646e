#include "infer/engine/decode_pass.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/vocabulary/edit_logits.h"
#include "kernels/vocabulary/top_k.h"
#include "model/graphs/timer.h"

namespace clover::infer {
namespace {

/// Adds the sampling rule of the token after each node of `tree`; `position`: of the token after its root.
void add_rules(const CandidateTree& tree, const Request& request, int64_t position,
               std::vector<kernels::RowRule>& rules) {
  const auto& [temperature, top_p, top_k, min_p] = request.sampling;
  const double farthest = -std::log(min_p);
  for (const int32_t depth : tree.depth) {
    const double uniform = temperature > 0 ? uniform_at(request.random, position + depth) : 0;
    rules.push_back({temperature, top_p, static_cast<double>(top_k), uniform, farthest});
  }
}

/// The token of each row of `logits` under its rule: i64 [R], on their device.
at::Tensor chosen(const at::Tensor& logits, std::vector<kernels::RowRule> rules) {
  const bool greedy =
      std::all_of(rules.begin(), rules.end(), [](const auto& rule) { return rule.temperature == 0; });
  if (greedy) return kernels::arg_max(logits);
  const at::Tensor here = at::from_blob(rules.data(), {std::ssize(rules), 5}, at::kDouble);
  return kernels::sample(logits, kernels::to_device(here, logits.device()));
}

/// All rows of the pass; a chunk's rows are a chain.
model::RowBatch rows_of(const DecodePass& pass) {
  model::RowBatch batch;
  for (size_t i = 0; i < pass.trees.size(); ++i) {
    const CandidateTree& tree = pass.trees[i];
    const int32_t base = static_cast<int32_t>(batch.size());
    for (int64_t node = 0; node < tree.size(); ++node) {
      const int32_t parent = tree.parent[node];
      batch.add(tree.ids[node], pass.sequences[i]->sequence(), parent < 0 ? -1 : base + parent);
    }
  }
  for (const PrefillChunk& chunk : pass.chunks) {
    const std::span<const int64_t> ids = chunk.live->prefill_tokens().subspan(chunk.begin, chunk.rows);
    for (int64_t i = 0; i < chunk.rows; ++i)
      batch.add(ids[i], chunk.live->sequence(), i == 0 ? -1 : static_cast<int32_t>(batch.size()) - 1);
  }
  batch.wanted = pass.wanted();
  return batch;
}

/// The sampling rule of each wanted row.
std::vector<kernels::RowRule> rules_of(const DecodePass& pass) {
  std::vector<kernels::RowRule> rules;
  for (size_t i = 0; i < pass.trees.size(); ++i)
    add_rules(pass.trees[i], pass.sequences[i]->request(), pass.context_lengths[i] + 1, rules);
  const CandidateTree last = CandidateTree::of_root(0);
  for (const PrefillChunk& chunk : pass.chunks)
    if (chunk.last) add_rules(last, chunk.live->request(), chunk.begin + chunk.rows, rules);
  return rules;
}

bool is_greedy(const DecodePass& pass) {
  const auto greedy = [](const LiveSequence* live) { return live->request().sampling.temperature == 0; };
  return std::ranges::all_of(pass.sequences, greedy) &&
         std::ranges::all_of(pass.chunks,
                             [&](const PrefillChunk& chunk) { return !chunk.last || greedy(chunk.live); });
}

bool edits_logits(const DecodePass& pass) {
  const auto controlled = [](LiveSequence* live) { return live->controlled() != nullptr; };
  return std::ranges::any_of(pass.sequences, controlled) ||
         std::ranges::any_of(pass.chunks,
                             [&](const PrefillChunk& chunk) { return chunk.last && controlled(chunk.live); });
}

/// What requests' controls change of the logits of wanted rows.
LogitEdits edits_of(const DecodePass& pass) {
  LogitEdits all;
  int64_t row = 0;
  const auto add = [&](LiveSequence& live, const CandidateTree& tree) {
    if (LogitEditor* text = live.controlled()) text->add_edits(tree, row, all);
    row += tree.size();
  };
  for (size_t i = 0; i < pass.trees.size(); ++i) add(*pass.sequences[i], pass.trees[i]);
  const CandidateTree last = CandidateTree::of_root(0);
  for (const PrefillChunk& chunk : pass.chunks)
    if (chunk.last) add(*chunk.live, last);
  return all;
}

/// The bytes of `structs` as i32 [n, words of one] on `device`.
template <class Struct>
at::Tensor words_of(std::vector<Struct>& structs, at::Device device) {
  constexpr int64_t words = sizeof(Struct) / sizeof(int32_t);
  return kernels::to_device(at::from_blob(structs.data(), {std::ssize(structs), words}, at::kInt), device);
}

void apply_controls(const DecodePass& pass, at::Tensor logits) {
  LogitEdits all = edits_of(pass);
  if (all.rows.empty()) return;
  kernels::edit_logits(logits, words_of(all.edits, logits.device()), words_of(all.rows, logits.device()));
}

at::Tensor index_of(std::span<const int64_t> rows) {
  return at::tensor(at::IntArrayRef(rows.data(), rows.size()), at::kLong);
}

/// A copy of those rows.
at::Tensor picked(const at::Tensor& tensor, std::span<const int64_t> rows) {
  return tensor.index_select(0, kernels::to_device(index_of(rows), tensor.device()));
}

model::Features picked(const model::Features& features, std::span<const int64_t> rows) {
  return features.rows(index_of(rows));
}

template <class T>
std::vector<T> picked(const std::vector<T>& all, std::span<const int64_t> rows) {
  std::vector<T> some;
  for (const int64_t row : rows) some.push_back(all[row]);
  return some;
}

}  // namespace

bool DecodePass::plain() const {
  return std::all_of(trees.begin(), trees.end(), [](const CandidateTree& tree) { return tree.size() == 1; });
}

bool DecodePass::ends_prompts() const {
  return std::ranges::any_of(chunks, &PrefillChunk::last);
}

int64_t DecodePass::tree_rows() const {
  int64_t rows = 0;
  for (const CandidateTree& tree : trees) rows += tree.size();
  return rows;
}

int64_t DecodePass::chunk_rows() const {
  int64_t rows = 0;
  for (const PrefillChunk& chunk : chunks) rows += chunk.rows;
  return rows;
}

std::vector<int64_t> DecodePass::wanted() const {
  std::vector<int64_t> rows(tree_rows());
  std::iota(rows.begin(), rows.end(), 0);
  for (int64_t end = tree_rows(); const PrefillChunk& chunk : chunks) {
    end += chunk.rows;
    if (chunk.last) rows.push_back(end - 1);
  }
  return rows;
}

DecodePass PassRunner::begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                             std::vector<PrefillChunk> chunks) {
  return begin(std::move(sequences), std::move(trees), std::move(chunks), {});
}

DecodePass PassRunner::begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                             std::vector<PrefillChunk> chunks, const at::Tensor& first_ids) {
  DecodePass pass;
  for (const LiveSequence* live : sequences) pass.context_lengths.push_back(cache_.length(live->sequence()));
  pass.sequences = std::move(sequences);
  pass.trees = std::move(trees);
  pass.chunks = std::move(chunks);
  model::RowBatch batch = rows_of(pass);
  pass.edits_logits = edits_logits(pass);
  batch.best_only = !typical_ && !pass.edits_logits && is_greedy(pass);
  if (samples_on_device())
    launch_on_device(pass, batch, first_ids);
  else
    run_and_wait(pass, batch);
  pass.representative = passes_.warm() && pass.chunks.empty();
  return pass;
}

void PassRunner::launch_on_device(DecodePass& pass, const model::RowBatch& batch,
                                  const at::Tensor& first_ids) const {
  pass.launched = kernels::record_event(device_);
  const double captured = graph_runner_.seconds();
  pass.output = passes_.forward(batch, taps_, first_ids);
  pass.capture_seconds = graph_runner_.seconds() - captured;
  if (batch.wanted.empty()) return;
  const at::Tensor logits = std::exchange(pass.output.logits, {});
  if (pass.edits_logits) apply_controls(pass, logits);
  pass.tokens = batch.best_only ? pass.output.best : chosen(logits, rules_of(pass));
  pass.token_copy = kernels::copy_to_host_async(pass.tokens);
}

void PassRunner::run_and_wait(DecodePass& pass, const model::RowBatch& batch) const {
  const model::Timer timer(pass.seconds);
  pass.output = passes_.forward(batch, taps_);
  if (batch.wanted.empty()) return;
  if (pass.edits_logits) apply_controls(pass, pass.output.logits);
  if (batch.best_only)
    pass.target.tokens = kernels::to_host({pass.output.best})[0];
  else
    pass.target.logits = kernels::to_host({pass.output.logits})[0];
}

DecodePass PassRunner::begin_behind(DecodePass& pass, std::vector<PrefillChunk> chunks) {
  own_features(pass);
  const std::vector<int32_t> root{0};
  std::vector<model::KvCache::Kept> kept;
  for (const LiveSequence* live : pass.sequences) kept.push_back({live->sequence(), root});
  cache_.commit(kept);
  pass.commit = CommitState::committed;

  std::vector<int64_t> rows;  // of `pass`, of sequences that continue
  for (size_t i = 0; i < pass.sequences.size(); ++i)
    if (continues(*pass.sequences[i])) rows.push_back(static_cast<int64_t>(i));
  std::vector<LiveSequence*> sequences = picked(pass.sequences, rows);
  std::vector<CandidateTree> trees(sequences.size(), CandidateTree::of_root(0));
  const bool all = std::ssize(rows) == pass.tokens.size(0);
  DecodePass next = begin(std::move(sequences), std::move(trees), std::move(chunks),
                          all ? pass.tokens : picked(pass.tokens, rows));
  // Passes of the same shape may run before this one's results are used.  Where it has chunks,
  // Engine::commit_prefill copies the features after the drafter has read those of the chunks.
  if (next.chunks.empty()) own_features(next);
  if (next.output.best.defined()) next.tokens = next.tokens.clone();
  return next;
}

void PassRunner::own_features(DecodePass& pass) const {
  if (std::exchange(pass.owns_features, true)) return;
  pass.output.features = picked(pass.output.features, pass.wanted());
}

void PassRunner::retain(DecodePass& pass, std::span<const int64_t> sequences,
                        std::span<const int64_t> chunks) const {
  std::vector<int64_t> wanted(sequences.begin(), sequences.end());
  std::vector<bool> left(pass.chunks.size());
  for (const int64_t chunk : chunks) left[chunk] = true;
  for (int64_t row = pass.tree_rows(), i = 0; i < std::ssize(pass.chunks); ++i) {
    if (!pass.chunks[i].last) continue;
    if (left[i]) wanted.push_back(row);
    ++row;
  }
  pass.sequences = picked(pass.sequences, sequences);
  pass.trees = picked(pass.trees, sequences);
  pass.context_lengths = picked(pass.context_lengths, sequences);
  pass.chunks = picked(pass.chunks, chunks);
  pass.representative = false;  // it computed rows that are gone
  if (!pass.tokens.defined()) return;
  pass.tokens = picked(pass.tokens, wanted);
  pass.output.features = picked(pass.output.features, wanted);
  pass.retained = std::move(wanted);
}

// No token is wanted where all chunks are parts of prompts that go on.
void PassRunner::wait(DecodePass& pass) const {
  if (!samples_on_device() || !pass.tokens.defined()) return;
  pass.target.tokens = pass.token_copy.wait();
  pass.seconds = pass.token_copy.event->seconds_since(*pass.launched) - pass.capture_seconds;
  if (pass.retained) pass.target.tokens = picked(pass.target.tokens, *pass.retained);
}

}  // namespace clover::infer
