#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temporary_folder.h"

namespace clover::test {

/// Writes a tokenizer of one token a byte (id = byte value) with the two tokens of the chatml format (256,
/// 257).
inline void write_tiny_tokenizer(const TemporaryFolder& folder) {
  const auto utf8 = [](int code) {
    if (code < 128) return std::string(1, static_cast<char>(code));
    return std::string{static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 63))};
  };
  nlohmann::json vocab = nlohmann::json::object();
  int stand_in = 256;  // GPT-2's alphabet: bytes that cannot be printed borrow characters from U+0100 on
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    vocab[utf8(printable ? byte : stand_in++)] = byte;
  }
  nlohmann::json added = nlohmann::json::array();
  for (const char* token : {"<|im_start|>", "<|im_end|>"}) {
    added.push_back({{"id", 256 + added.size()},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const nlohmann::json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const nlohmann::json tokenizer = {
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}};
  folder.write("tokenizer.json", tokenizer.dump());
  folder.write("tokenizer_config.json", nlohmann::json{{"eos_token", "<|im_end|>"}}.dump());
}

}  // namespace clover::test
