#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace clover::data {

struct Message {
  std::string role;  // system | user | assistant
  std::string content;
};

/// A conversation as the model reads it, and the byte ranges [begin, end) an assistant wrote, its end token included.
struct RenderedChat {
  std::string text;
  std::vector<std::pair<size_t, size_t>> assistant_spans;
};

/// One of the known chat formats: chatml (with the folder's default system prompt, if it has one), llama-2, llama-3, vicuna, none.
class ChatTemplate {
 public:
  /// `name` empty: recognised from the folder's tokenizer_config.json (its `chat_template`) or `chat_template.jinja`.
  /// InputError listing the known names when the name or the template is unknown, and when there is none.
  static ChatTemplate load(const std::filesystem::path& folder, const std::string& name = "");
  static std::vector<std::string> known_names();

  /// InputError for an unknown role or an order the format cannot express.  With `generation_prompt` the text ends where
  /// the assistant's answer begins.
  RenderedChat render(const std::vector<Message>& messages, bool generation_prompt) const;

  const std::string& name() const { return name_; }
  bool text_has_bos() const;  // the rendered text begins with the BOS token: do not add another
  std::string hash() const;   // 16 hex digits of name and default system prompt

 private:
  std::string name_;
  std::string default_system_;
  std::string bos_;  // text of the BOS token, for formats that write it
  std::string eos_;
};

}  // namespace clover::data
