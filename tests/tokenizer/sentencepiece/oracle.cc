// SentencePiece's own library as a program, so that its protobuf stays out of our tests' process.
//
//   oracle train TEXT PREFIX TYPE NORMALIZATION   writes PREFIX.model, trained on the file TEXT
//   oracle encode MODEL TEXTS RESULTS             reads and writes files of length-prefixed
//                                                 strings: for each text its ids, and what they
//                                                 decode to

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

namespace {

bool Check(const sentencepiece::util::Status& status) {
  if (!status.ok()) std::cerr << status.ToString() << '\n';
  return status.ok();
}

bool Train(const std::string& text, const std::string& prefix, const std::string& type,
           const std::string& normalization) {
  const bool keeps_spaces = normalization == "identity";
  return Check(sentencepiece::SentencePieceTrainer::Train(
      "--input=" + text + " --model_prefix=" + prefix + " --model_type=" + type +
      " --normalization_rule_name=" + normalization + " --vocab_size=900 --minloglevel=2" +
      " --byte_fallback=" + (type == "bpe" ? "true" : "false") +
      " --remove_extra_whitespaces=" + (keeps_spaces ? "false" : "true")));
}

bool Encode(const std::string& model, std::istream& texts, std::ostream& results) {
  sentencepiece::SentencePieceProcessor processor;
  if (!Check(processor.Load(model))) return false;
  for (size_t length; texts >> length;) {
    texts.get();
    std::string text(length, '\0');
    texts.read(text.data(), static_cast<std::streamsize>(length));
    std::vector<int> ids;
    std::string decoded;
    if (!Check(processor.Encode(text, &ids)) || !Check(processor.Decode(ids, &decoded))) {
      return false;
    }
    results << ids.size();
    for (const int id : ids) results << ' ' << id;
    results << ' ' << decoded.size() << '\n' << decoded;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 5 && args[0] == "train") {
    return Train(args[1], args[2], args[3], args[4]) ? 0 : 1;
  }
  if (args.size() == 4 && args[0] == "encode") {
    std::ifstream texts(args[2], std::ios::binary);
    std::ofstream results(args[3], std::ios::binary);
    return Encode(args[1], texts, results) && results.flush() ? 0 : 1;
  }
  std::cerr << "oracle train TEXT PREFIX TYPE NORMALIZATION | encode MODEL TEXTS RESULTS\n";
  return 2;
}
