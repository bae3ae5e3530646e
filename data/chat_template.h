#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace clover::data {

struct Message {
  std::string role;  // system | user | assistant
  std::string content;
};

/// A conversation as the model reads it, and the byte ranges [begin, end) an assistant wrote, its end token
/// included.
struct RenderedChat {
  std::string text;
  std::vector<std::pair<size_t, size_t>> assistant_spans;
};

/// One of the known chat formats: chatml (with the folder's default system prompt, if it has one), llama-2,
/// llama-3, vicuna, none.
class ChatTemplate {
 public:
  /// `name` empty: recognised from the folder's `chat_template.jinja` or tokenizer_config.json (its
  /// `chat_template`). InputError listing the known names when the name or the template is unknown, and when
  /// there is none.
  static ChatTemplate load(const std::filesystem::path& folder, const std::string& name = "");
  static std::vector<std::string> known_names();

  /// InputError for an unknown role or an order the format cannot express.  With `generation_prompt` the text
  /// ends where the assistant's answer begins.
  RenderedChat render(const std::vector<Message>& messages, bool generation_prompt) const;

  const std::string& name() const { return name_; }
  /// The rendered text has all the BOS tokens it should have: do not add another.
  bool text_has_bos() const { return text_has_bos_; }
  std::string hash() const;  // 16 hex digits of name, default system prompt and what else decides the text

 private:
  /// Takes what differs between templates of one format from the Jinja text of this folder's.
  void read_details(const std::string& jinja);

  void render_chatml(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;
  void render_llama2(const std::vector<Message>& messages, RenderedChat& chat) const;
  void render_llama3(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;
  void render_vicuna(const std::vector<Message>& messages, bool generation_prompt, RenderedChat& chat) const;

  std::string name_;
  std::string default_system_;  // used when the first message is not the system's
  std::optional<std::string>
      preamble_;     // llama-3.1: what every system message begins with; it is never left out
  std::string bos_;  // text of the BOS token, for formats that write it
  std::string eos_;
  bool writes_bos_ = false;
  bool trims_ = false;  // whitespace around contents is dropped
  bool text_has_bos_ = true;
};

}  // namespace clover::data
