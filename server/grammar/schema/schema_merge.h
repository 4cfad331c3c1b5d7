#ifndef LOWKEY_SERVER_GRAMMAR_SCHEMA_SCHEMA_MERGE_H_
#define LOWKEY_SERVER_GRAMMAR_SCHEMA_SCHEMA_MERGE_H_

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "server/grammar/schema/schema_check.h"

namespace lowkey::grammar {

// Brings schemas into a plain form, in which one object says all. Its keywords are those of JSON
// Schema but for these: "types" (bits), "never" (no value is valid), "least" and "most" (lists of
// [bound as text, whether it is open]), "patterns" and "formats" (lists), "choices" (a list of the
// lists of anyOf and oneOf), and "enum" for const too. There are no annotations, $ref and allOf.
class SchemaMerger {
 public:
  // Both must outlive this; `root` has been checked.
  SchemaMerger(const Json& root, Budget& budget) : root_(root), budget_(budget) {}

  // `place` is for messages.
  absl::StatusOr<Json> Plain(const Json& schema, const std::string& place, int depth = 0);
  // Returns the plain schema of the values that are valid under both plain schemas.
  absl::StatusOr<Json> Merge(Json a, const Json& b);
  // Returns the schema that a reference names, checked.
  absl::StatusOr<const Json*> Target(const std::string& reference, const std::string& place);

 private:
  Json Both(const Json& a, const Json& b);
  void MergeObjects(Json& a, const Json& b);
  void MergeArrays(Json& a, const Json& b);
  static void MergeEnums(Json& a, const Json& b);

  const Json& root_;
  Budget& budget_;
  int64_t n_uncharged_ = 0;  // comparisons of schemas
  absl::flat_hash_map<std::string, const Json*> targets_;
};

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_SCHEMA_SCHEMA_MERGE_H_
