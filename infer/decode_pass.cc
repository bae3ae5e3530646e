#include "infer/decode_pass.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "kernels/top_k.h"
#include "model/timer.h"

namespace clover::infer {
namespace {

/// Adds what the token after each node is drawn with; `position`: of the root's successor.
void add_rules(const CandidateTree& tree, const Request& request, int64_t position,
               std::vector<kernels::RowRule>& rules) {
  const auto& [temperature, top_p, top_k] = request.sampling;
  for (const int32_t depth : tree.depth) {
    const double uniform = temperature > 0 ? uniform_at(request.random, position + depth) : 0;
    rules.push_back({temperature, top_p, static_cast<double>(top_k), uniform});
  }
}

/// i64 [R], under one of `rules` a row, where the logits are.
at::Tensor chosen(const at::Tensor& logits, std::vector<kernels::RowRule> rules) {
  const bool greedy =
      std::all_of(rules.begin(), rules.end(), [](const auto& rule) { return rule.temperature == 0; });
  if (greedy) return kernels::arg_max(logits);
  const at::Tensor here = at::from_blob(rules.data(), {std::ssize(rules), 4}, at::kDouble);
  return kernels::sample(logits, kernels::to_device(here, logits.device()));
}

model::RowBatch rows_of(std::span<LiveSequence* const> sequences, std::span<const CandidateTree> trees) {
  model::RowBatch batch;
  for (size_t i = 0; i < trees.size(); ++i) {
    const int32_t base = static_cast<int32_t>(batch.size());
    for (int64_t node = 0; node < trees[i].size(); ++node) {
      const int32_t parent = trees[i].parent[node];
      batch.add(trees[i].ids[node], sequences[i]->sequence(), parent < 0 ? -1 : base + parent);
    }
  }
  batch.wanted.resize(batch.size());
  std::iota(batch.wanted.begin(), batch.wanted.end(), 0);
  return batch;
}

bool is_greedy(const LiveSequence* live) {
  return live->request().sampling.temperature == 0;
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

DecodePass DecodePasses::begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees) {
  return begin(std::move(sequences), std::move(trees), {});
}

DecodePass DecodePasses::begin(std::vector<LiveSequence*> sequences, std::vector<CandidateTree> trees,
                               const at::Tensor& first_ids) {
  DecodePass pass;
  for (const LiveSequence* live : sequences) pass.contexts.push_back(cache_.length(live->sequence()));
  model::RowBatch batch = rows_of(sequences, trees);
  batch.best_only = !typical_ && std::ranges::all_of(sequences, is_greedy);
  std::vector<kernels::RowRule> rules;
  for (size_t i = 0; chooses_there() && !batch.best_only && i < trees.size(); ++i)
    add_rules(trees[i], sequences[i]->request(), pass.contexts[i] + 1, rules);
  pass.sequences = std::move(sequences);
  pass.trees = std::move(trees);
  if (chooses_there()) {
    pass.begun = kernels::mark(device_);
    const double recorded = recorder_.seconds();
    pass.output = passes_.forward(batch, taps_, first_ids);
    pass.recording = recorder_.seconds() - recorded;
    const at::Tensor logits = std::exchange(pass.output.logits, {});
    pass.tokens = batch.best_only ? pass.output.best : chosen(logits, std::move(rules));
    pass.arriving = kernels::begin_to_host(pass.tokens);
  } else {
    const model::Timer timer(pass.seconds);
    pass.output = passes_.forward(batch, taps_);
    if (batch.best_only)
      pass.said.tokens = pass.output.best;
    else
      pass.said.logits = kernels::to_host({pass.output.logits})[0];
  }
  pass.typical = passes_.settled();
  return pass;
}

DecodePass DecodePasses::begin_behind(DecodePass& pass, std::span<LiveSequence* const> others) {
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
  sequences.insert(sequences.end(), others.begin(), others.end());
  std::vector<CandidateTree> trees;
  for (size_t i = 0; i < sequences.size(); ++i) {
    sequences[i]->ahead().row = static_cast<int64_t>(i);
    trees.push_back(CandidateTree::of_root(i < rows.size() ? 0 : sequences[i]->root()));
  }
  const bool all = rows.size() == pass.sequences.size();
  DecodePass next =
      begin(std::move(sequences), std::move(trees), all ? pass.tokens : picked(pass.tokens, rows));
  keep_features(next);
  if (next.output.best.defined()) next.tokens = next.tokens.clone();  // likewise
  return next;
}

// Other passes run before they are asked for, and write to where they lie.
void DecodePasses::keep_features(DecodePass& pass) const {
  if (std::exchange(pass.own_features, true)) return;
  std::vector<int64_t> all(pass.sequences.size());
  std::iota(all.begin(), all.end(), 0);
  pass.output.features = picked(pass.output.features, all);
}

void DecodePasses::leave(DecodePass& pass, std::span<const int64_t> rows) const {
  pass.sequences = picked(pass.sequences, rows);
  pass.trees = picked(pass.trees, rows);
  pass.contexts = picked(pass.contexts, rows);
  pass.tokens = picked(pass.tokens, rows);
  pass.output.features = picked(pass.output.features, rows);
  pass.rows.assign(rows.begin(), rows.end());
  pass.typical = false;  // as long as that of all rows
}

void DecodePasses::wait(DecodePass& pass) const {
  if (!chooses_there()) return;
  pass.said.tokens = pass.arriving.wait();
  pass.seconds = pass.arriving.there->seconds_since(*pass.begun) - pass.recording;
  if (!pass.rows.empty()) pass.said.tokens = picked(pass.said.tokens, pass.rows);
}

Verdict DecodePasses::judge(const at::Tensor& logits, const Request& request, int64_t position) const {
  if (!chooses_there()) return {kernels::to_host({logits})[0], {}};
  std::vector<kernels::RowRule> rules;
  add_rules(CandidateTree::of_root(0), request, position, rules);
  return {{}, kernels::to_host({chosen(logits, std::move(rules))})[0]};
}

}  // namespace clover::infer
