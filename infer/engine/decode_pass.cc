#include "infer/engine/decode_pass.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/vocabulary/edit_logits.h"
#include "kernels/vocabulary/top_k.h"
#include "model/graphs/timer.h"

namespace clover::infer {
namespace {

/// Adds what the token after each node is drawn with; `position`: of the root's successor.
void add_rules(const CandidateTree& tree, const Request& request, int64_t position,
               std::vector<kernels::RowRule>& rules) {
  const auto& [temperature, top_p, top_k, min_p] = request.sampling;
  const double farthest = -std::log(min_p);
  for (const int32_t depth : tree.depth) {
    const double uniform = temperature > 0 ? uniform_at(request.random, position + depth) : 0;
    rules.push_back({temperature, top_p, static_cast<double>(top_k), uniform, farthest});
  }
}

/// i64 [R], under one of `rules` a row, where the logits are.
at::Tensor chosen(const at::Tensor& logits, std::vector<kernels::RowRule> rules) {
  const bool greedy =
      std::all_of(rules.begin(), rules.end(), [](const auto& rule) { return rule.temperature == 0; });
  if (greedy) return kernels::arg_max(logits);
  const at::Tensor here = at::from_blob(rules.data(), {std::ssize(rules), 5}, at::kDouble);
  return kernels::sample(logits, kernels::to_device(here, logits.device()));
}

/// All rows of the pass; those of chunks one behind the other.
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
  for (const PromptChunk& chunk : pass.chunks) {
    const std::span<const int64_t> ids = chunk.live->to_read().subspan(chunk.begin, chunk.rows);
    for (int64_t i = 0; i < chunk.rows; ++i)
      batch.add(ids[i], chunk.live->sequence(), i == 0 ? -1 : static_cast<int32_t>(batch.size()) - 1);
  }
  batch.wanted = pass.wanted();
  return batch;
}

/// What the token of each wanted row is drawn with.
std::vector<kernels::RowRule> rules_of(const DecodePass& pass) {
  std::vector<kernels::RowRule> rules;
  for (size_t i = 0; i < pass.trees.size(); ++i)
    add_rules(pass.trees[i], pass.sequences[i]->request(), pass.contexts[i] + 1, rules);
  const CandidateTree last = CandidateTree::of_root(0);
  for (const PromptChunk& chunk : pass.chunks)
    if (chunk.last) add_rules(last, chunk.live->request(), chunk.begin + chunk.rows, rules);
  return rules;
}

bool is_greedy(const DecodePass& pass) {
  const auto greedy = [](const LiveSequence* live) { return live->request().sampling.temperature == 0; };
  return std::ranges::all_of(pass.sequences, greedy) &&
         std::ranges::all_of(pass.chunks,
                             [&](const PromptChunk& chunk) { return !chunk.last || greedy(chunk.live); });
}

bool is_controlled(const DecodePass& pass) {
  const auto controlled = [](LiveSequence* live) { return live->controlled() != nullptr; };
  return std::ranges::any_of(pass.sequences, controlled) ||
         std::ranges::any_of(pass.chunks,
                             [&](const PromptChunk& chunk) { return chunk.last && controlled(chunk.live); });
}

/// What requests ask for to be done to the logits of wanted rows.
LogitEdits edits_of(const DecodePass& pass) {
  LogitEdits all;
  int64_t row = 0;
  const auto add = [&](LiveSequence& live, const CandidateTree& tree) {
    if (ControlledText* text = live.controlled()) text->add_edits(tree, row, all);
    row += tree.size();
  };
  for (size_t i = 0; i < pass.trees.size(); ++i) add(*pass.sequences[i], pass.trees[i]);
  const CandidateTree last = CandidateTree::of_root(0);
  for (const PromptChunk& chunk : pass.chunks)
    if (chunk.last) add(*chunk.live, last);
  return all;
}

/// The bytes of `structs` as words on `device`.
template <class Struct>
at::Tensor words_of(std::vector<Struct>& structs, at::Device device) {
  constexpr int64_t words = sizeof(Struct) / sizeof(int32_t);
  return kernels::to_device(at::from_blob(structs.data(), {std::ssize(structs), words}, at::kInt), device);
}

void edit_logits(const DecodePass& pass, at::Tensor logits) {
  LogitEdits all = edits_of(pass);
  if (all.rows.empty()) return;
  kernels::edit_logits(logits, words_of(all.edits, logits.device()), words_of(all.rows, logits.device()));
}

at::Tensor index_of(std::span<const int64_t> rows) {
  at::Tensor index = at::empty({std::ssize(rows)}, at::kLong);
  std::copy(rows.begin(), rows.end(), index.mutable_data_ptr<int64_t>());
  return index;
}

/// Those rows, in memory of their own.
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
  return std::ranges::any_of(chunks, &PromptChunk::last);
}

int64_t DecodePass::tree_rows() const {
  int64_t rows = 0;
  for (const CandidateTree& tree : trees) rows += tree.size();
  return rows;
}

int64_t DecodePass::chunk_rows() const {
  int64_t rows = 0;
  for (const PromptChunk& chunk : chunks) rows += chunk.rows;
  return rows;
}

std::vector<int64_t> DecodePass::wanted() const {
  std::vector<int64_t> rows(tree_rows());
  std::iota(rows.begin(), rows.end(), 0);
  for (int64_t end = tree_rows(); const PromptChunk& chunk : chunks) {
    end += chunk.rows;
    if (chunk.last) rows.push_back(end - 1);
  }
  return rows;
}

DecodePass DecodePasses::begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                               std::vector<PromptChunk> chunks) {
  return begin(std::move(sequences), std::move(trees), std::move(chunks), {});
}

DecodePass DecodePasses::begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                               std::vector<PromptChunk> chunks, const at::Tensor& first_ids) {
  DecodePass pass;
  for (const LiveSequence* live : sequences) pass.contexts.push_back(cache_.length(live->sequence()));
  pass.sequences = std::move(sequences);
  pass.trees = std::move(trees);
  pass.chunks = std::move(chunks);
  model::RowBatch batch = rows_of(pass);
  pass.controlled = is_controlled(pass);
  batch.best_only = !typical_ && !pass.controlled && is_greedy(pass);
  if (chooses_there())
    begin_there(pass, batch, first_ids);
  else
    run_here(pass, batch);
  pass.typical = passes_.settled() && pass.chunks.empty();
  return pass;
}

void DecodePasses::begin_there(DecodePass& pass, const model::RowBatch& batch,
                               const at::Tensor& first_ids) const {
  pass.begun = kernels::mark(device_);
  const double recorded = recorder_.seconds();
  pass.output = passes_.forward(batch, taps_, first_ids);
  pass.recording = recorder_.seconds() - recorded;
  if (batch.wanted.empty()) return;
  const at::Tensor logits = std::exchange(pass.output.logits, {});
  if (pass.controlled) edit_logits(pass, logits);
  pass.tokens = batch.best_only ? pass.output.best : chosen(logits, rules_of(pass));
  pass.arriving = kernels::begin_to_host(pass.tokens);
}

void DecodePasses::run_here(DecodePass& pass, const model::RowBatch& batch) const {
  const model::Timer timer(pass.seconds);
  pass.output = passes_.forward(batch, taps_);
  if (batch.wanted.empty()) return;
  if (pass.controlled) edit_logits(pass, pass.output.logits);
  if (batch.best_only)
    pass.said.tokens = kernels::to_host({pass.output.best})[0];
  else
    pass.said.logits = kernels::to_host({pass.output.logits})[0];
}

DecodePass DecodePasses::begin_behind(DecodePass& pass, std::vector<PromptChunk> chunks) {
  keep_features(pass);
  const std::vector<int32_t> root{0};
  std::vector<model::KvCache::Kept> kept;
  for (const LiveSequence* live : pass.sequences) kept.push_back({live->sequence(), root});
  cache_.commit(kept);
  pass.kept = DecodePass::Kept::all;

  std::vector<int64_t> rows;  // of `pass`, whose tokens come next
  for (size_t i = 0; i < pass.sequences.size(); ++i)
    if (goes_on(*pass.sequences[i])) rows.push_back(static_cast<int64_t>(i));
  std::vector<LiveSequence*> sequences = picked(pass.sequences, rows);
  for (size_t i = 0; i < sequences.size(); ++i) sequences[i]->ahead().row = static_cast<int64_t>(i);
  for (const PromptChunk& chunk : chunks) chunk.live->ahead().reading = true;
  std::vector<CandidateTree> trees(sequences.size(), CandidateTree::of_root(0));
  const bool all = std::ssize(rows) == pass.tokens.size(0);
  DecodePass next = begin(std::move(sequences), std::move(trees), std::move(chunks),
                          all ? pass.tokens : picked(pass.tokens, rows));
  if (next.chunks.empty()) keep_features(next);                       // else all of them are read first
  if (next.output.best.defined()) next.tokens = next.tokens.clone();  // likewise
  return next;
}

// Other passes run before they are asked for, and write to where they lie.
void DecodePasses::keep_features(DecodePass& pass) const {
  if (std::exchange(pass.own_features, true)) return;
  pass.output.features = picked(pass.output.features, pass.wanted());
}

void DecodePasses::leave(DecodePass& pass, std::span<const int64_t> rows,
                         std::span<const int64_t> chunks) const {
  std::vector<int64_t> wanted(rows.begin(), rows.end());
  std::vector<bool> stays(pass.chunks.size());
  for (const int64_t chunk : chunks) stays[chunk] = true;
  for (int64_t row = pass.tree_rows(), i = 0; i < std::ssize(pass.chunks); ++i) {
    if (!pass.chunks[i].last) continue;
    if (stays[i]) wanted.push_back(row);
    ++row;
  }
  pass.sequences = picked(pass.sequences, rows);
  pass.trees = picked(pass.trees, rows);
  pass.contexts = picked(pass.contexts, rows);
  pass.chunks = picked(pass.chunks, chunks);
  pass.typical = false;  // as long as that of all rows
  if (!pass.tokens.defined()) return;
  pass.tokens = picked(pass.tokens, wanted);
  pass.output.features = picked(pass.output.features, wanted);
  pass.rows = std::move(wanted);
}

// Prompts of which more comes are not waited for.
void DecodePasses::wait(DecodePass& pass) const {
  if (!chooses_there() || !pass.tokens.defined()) return;
  pass.said.tokens = pass.arriving.wait();
  pass.seconds = pass.arriving.there->seconds_since(*pass.begun) - pass.recording;
  if (pass.rows) pass.said.tokens = picked(pass.said.tokens, *pass.rows);
}

}  // namespace clover::infer
