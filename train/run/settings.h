#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

#include "model/drafters/setting.h"

namespace clover::train {

/// {option name: null} for every option of every kind of drafter; null stands for the default.
nlohmann::json default_kind_options();

/// The settings of `fit`.  `for_each` gives their names on the command line, in configs/*.toml and in
/// run.toml, and their meanings as --help shows them.
struct FitSettings {
  // Drafter.
  std::string kind = "clover";
  nlohmann::json kind_options = default_kind_options();  // options of the kind, by name; null: default
  int64_t draft_vocab = 8192;                            // 0: the whole vocabulary

  // Training.
  std::string target;       // folder of the language model
  std::string data;         // folder of the token store
  std::string init_heads;   // heads folder with the initial weights; "": drawn from the seed
  double lr = 4e-3;         // the highest learning rate
  double epochs = 2;        // passes over the data
  int64_t steps = 0;        // 0: as many as `epochs` takes
  int64_t batch = 16;       // samples of a step
  int64_t micro_batch = 8;  // samples computed at once
  int64_t warmup = 20;      // steps
  double clip = 1.0;        // limit of the global gradient norm; 0: none
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double head_decay = 0.8;             // the loss of head i has the weight head_decay^i
  std::string loss = "cross-entropy";  // LossTerms::parse
  int64_t distill_samples = 0;         // 0: the data's tokens are the labels
  double self_feed = 0;  // share of rows fed with own guesses at the last step (Trainer::self_feed)
  uint64_t seed = 1;
  int64_t max_length = 2048;  // tokens of a sample that are used

  // Computation.
  std::string device = "cpu";
  int64_t threads = 0;                 // 0: all cores
  std::string dtype = "auto";          // of the target; auto: as it is stored
  std::string compute_dtype = "auto";  // of the drafter's matrix products in training
  int64_t feature_cache = -1;          // bytes; -1: a quarter of the free memory
  std::string feature_file;            // "": none

  // Evaluation and checkpoints; these change no weight.
  int64_t eval_every = 200;        // steps; 0: only at the end
  int64_t eval_prompts = 32;       // held-out prompts of an evaluation; 0: no evaluation
  int64_t eval_max_tokens = 128;   // for each prompt
  int64_t checkpoint_every = 100;  // steps
  int64_t keep_checkpoints = 2;    // the newest ones; 0: all

  /// Calls visit(name, field, help) for each setting of `self`, a FitSettings, in the order above.
  template <class Self, class Visit>
  static void for_each(Self& self, Visit&& visit);

  /// InputError naming the setting that is out of range, what is expected and what was found.
  void check() const;

  /// All settings of a drafter of this kind, for model::make_drafter.  InputError for one that is out of
  /// bounds, and for an option that another kind has, unless its value is the default.
  nlohmann::json drafter_settings() const;

  /// All settings by option name; without the options of other kinds.
  nlohmann::json to_json() const;
  std::string to_toml() const;  // the same as a file for --config
  /// InputError if a setting differs from `recorded`, the settings of the run to resume, and would change its
  /// weights; it names the first such setting.
  void check_continues(const nlohmann::json& recorded) const;

  /// Recorded settings (to_json), with defaults for those that did not exist when they were recorded, and
  /// without the options of other kinds.
  static nlohmann::json with_defaults(const nlohmann::json& recorded);

  /// Whether two recorded settings give the same weights, bit for bit, with the same target and data.
  static bool same_weights(const nlohmann::json& left, const nlohmann::json& right);
};

/// The kinds of drafters, for messages: "clover, clover2, medusa".
std::string list_drafter_kinds();

template <class Self, class Visit>
void FitSettings::for_each(Self& self, Visit&& visit) {
  visit("kind", self.kind, "kind of heads: " + list_drafter_kinds());
  for (const model::DrafterOption& option : model::drafter_options())
    visit(option.name.c_str(), self.kind_options.at(option.name), option.help);
  visit("draft-vocab", self.draft_vocab,
        "tokens the heads can say, the most frequent ones; 0: all; with --init-heads those of these heads");
  visit("target", self.target, "folder of the frozen language model");
  visit("data", self.data, "folder that `prepare` wrote");
  visit("init-heads", self.init_heads, "heads folder to start from");
  visit("lr", self.lr,
        "highest learning rate; matrices copied from the target learn in proportion to their size");
  visit("epochs", self.epochs, "passes over the data (a fraction is fine)");
  visit("steps", self.steps, "optimiser steps; 0: as many as --epochs takes");
  visit("batch", self.batch, "answers a step");
  visit("micro-batch", self.micro_batch, "answers computed at once; more need more memory");
  visit("warmup", self.warmup, "steps of linear warm-up; then a cosine to 0");
  visit("clip", self.clip, "limit of the global gradient norm; 0: none");
  visit("weight-decay", self.weight_decay, "AdamW weight decay of matrices");
  visit("beta1", self.beta1, "AdamW beta 1");
  visit("beta2", self.beta2, "AdamW beta 2");
  visit("eps", self.eps, "AdamW epsilon");
  visit("head-decay", self.head_decay, "weight of head i's loss is this to the power i");
  visit("loss", self.loss,
        "terms of the loss joined by +, each with a weight before it or none: cross-entropy, soft-labels, "
        "total-variation, lk, smooth-l1");
  visit(
      "distill-samples", self.distill_samples,
      "labels of the cross-entropy that are drawn from the target's distribution at each position, in place "
      "of the data's token; the positions before stay the data's; 0: the data's token");
  visit(
      "self-feed", self.self_feed,
      "share of rows that are fed the heads' own guess in place of the true token: 0 at the first step, this "
      "at the last");
  visit("seed", self.seed, "seed of initial weights and data order");
  visit("max-length", self.max_length, "tokens of a sample that are used");
  visit("device", self.device, "cpu, cuda (of several processes each its own) or cuda:N");
  visit("threads", self.threads, "CPU threads; 0: all cores");
  visit("dtype", self.dtype, "dtype of the target: auto (as stored), bfloat16, float16 or float32");
  visit("compute-dtype", self.compute_dtype,
        "dtype of training products: auto (bfloat16 where it is faster), bfloat16, float32");
  visit("feature-cache", self.feature_cache,
        "bytes of target features kept for the next epoch; -1: a quarter of free memory");
  visit("feature-file", self.feature_file,
        "file of the target's features: written once all are known, read by later runs on the same data with "
        "the same --tap-layers or none");
  visit("eval-every", self.eval_every, "steps between evaluations by the real decoder; 0: only at the end");
  visit("eval-prompts", self.eval_prompts, "held-out prompts an evaluation decodes; 0: no evaluation");
  visit("eval-max-tokens", self.eval_max_tokens, "tokens an evaluation decodes for each prompt");
  visit("checkpoint-every", self.checkpoint_every, "steps between checkpoints");
  visit("keep-checkpoints", self.keep_checkpoints, "newest checkpoints kept; 0: all");
}

}  // namespace clover::train
