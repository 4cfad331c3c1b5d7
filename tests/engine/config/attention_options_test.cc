#include "engine/config/attention_options.h"

#include <cmath>
#include <functional>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/config/attention_option_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

AttentionOptions Atp() {
  AttentionOptions options;
  options.mechanism = Mechanism::kAtp;
  return options;
}

void ExpectRefused(const AttentionOptions& options, const std::string& message) {
  const absl::Status status = ValidateAttentionOptions(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), message);
}

TEST(ValidateAttentionOptions, AcceptsEveryDefault) {
  EXPECT_TRUE(ValidateAttentionOptions(AttentionOptions{}).ok());
  EXPECT_TRUE(ValidateAttentionOptions(Atp()).ok());
  AttentionOptions options;
  options.mechanism = Mechanism::kTaylorShift;
  EXPECT_TRUE(ValidateAttentionOptions(options).ok());
}

TEST(ValidateAttentionOptions, DoesNotReadAtpUnderStandard) {
  AttentionOptions options;
  options.atp.block_tokens = -1;
  EXPECT_TRUE(ValidateAttentionOptions(options).ok());
}

TEST(ValidateAttentionOptions, AcceptsBothEndsOfEachRange) {
  const std::function<void(AtpOptions&)> edits[] = {
      [](AtpOptions& o) { o.block_tokens = 64; },
      [](AtpOptions& o) { o.block_tokens = 4096; },
      [](AtpOptions& o) { o.sinks = 0; },
      [](AtpOptions& o) { o.sinks = 63; },
      [](AtpOptions& o) { o.block_tokens = 64, o.sinks = 63; },
      [](AtpOptions& o) { o.window_blocks = 0; },
      [](AtpOptions& o) { o.window_blocks = 64; },
      [](AtpOptions& o) { o.rank = RankFixed{1}; },
      [](AtpOptions& o) { o.rank = RankFixed{512}; },
      [](AtpOptions& o) { o.rank = RankFraction{1.0}; },
      [](AtpOptions& o) { o.rank = RankFraction{1e-9}; },
      [](AtpOptions& o) { o.rank = RankEnergy{1.0}; },
      [](AtpOptions& o) { o.rank = RankEntropy{}; },
      [](AtpOptions& o) { o.refine_tokens = 4096; },
      [](AtpOptions& o) { o.decomposition = AtpDecomposition::kAlternating; },
      [](AtpOptions& o) { o.basis_storage = o.principal_storage = AtpStorage::kInt8; },
      [](AtpOptions& o) { o.basis_storage = AtpStorage::kInt4; },
      [](AtpOptions& o) { o.readout = AtpReadout::kLinear, o.merge = true; },
      [](AtpOptions& o) { o.kept_storage = AtpStorage::kInt8; },
      [](AtpOptions& o) { o.basis = AtpBasis::kKv, o.prefill = AtpPrefill::kCompressed; },
  };
  for (const auto& edit : edits) {
    AttentionOptions options = Atp();
    edit(options.atp);
    EXPECT_TRUE(ValidateAttentionOptions(options).ok()) << ValidateAttentionOptions(options);
  }
}

TEST(ValidateAttentionOptions, RefusesBlockOutsideItsRangeOrGrid) {
  AttentionOptions options = Atp();
  options.atp.block_tokens = 0;
  ExpectRefused(options, "atp block: 0, expected 64..4096");
  options.atp.block_tokens = 4160;
  ExpectRefused(options, "atp block: 4160, expected 64..4096");
  options.atp.block_tokens = 100;
  ExpectRefused(options, "atp block: 100, expected a multiple of 64 in 64..4096");
}

TEST(ValidateAttentionOptions, RefusesSinksThatFillTheFirstBlock) {
  AttentionOptions options = Atp();
  options.atp.sinks = 64;
  ExpectRefused(options, "atp sinks: 64, expected 0..63");
  options.atp.sinks = -1;
  ExpectRefused(options, "atp sinks: -1, expected 0..63");
}

TEST(ValidateAttentionOptions, RefusesWindowOutsideItsRange) {
  AttentionOptions options = Atp();
  options.atp.window_blocks = 65;
  ExpectRefused(options, "atp window: 65, expected 0..64");
  options.atp.window_blocks = -1;
  ExpectRefused(options, "atp window: -1, expected 0..64");
}

TEST(ValidateAttentionOptions, RefusesRefineOutsideItsRange) {
  AttentionOptions options = Atp();
  options.atp.refine_tokens = 4097;
  ExpectRefused(options, "atp refine: 4097, expected 0..4096");
  options.atp.refine_tokens = -1;
  ExpectRefused(options, "atp refine: -1, expected 0..4096");
}

TEST(ValidateAttentionOptions, RefusesWhatAReadoutHasNoUseFor) {
  AttentionOptions options = Atp();
  options.atp.merge = true;
  ExpectRefused(options, "atp merge: true, expected false with readout exact");
  options.atp.readout = AtpReadout::kLinear;
  options.atp.refine_tokens = 8;
  ExpectRefused(options, "atp refine: 8, expected 0 with readout linear");
  options.atp.refine_tokens = 0;
  options.atp.basis_storage = AtpStorage::kInt8;
  ExpectRefused(options,
                "atp basis storage: int8, expected cache with readout linear, which keeps no "
                "basis");
}

TEST(ValidateAttentionOptions, RefusesWhatACalibratedBasisHasNoUseFor) {
  AttentionOptions options = Atp();
  options.atp.basis = AtpBasis::kCalibrated;
  ExpectRefused(options, "atp refine: 0, expected 1..4096 with basis calibrated, such as 128");
  options.atp.refine_tokens = 128;
  options.atp.kept_storage = AtpStorage::kInt4;
  EXPECT_TRUE(ValidateAttentionOptions(options).ok());
  EXPECT_EQ(AttentionLabel(options),
            "atp basis calibrated block 512 window 1 refine 128 kept int4 prefill exact");
  AttentionOptions other = options;
  other.atp.rank = RankFixed{8};
  ExpectRefused(other, "atp rank: 8, expected 0.25 with basis calibrated");
  other = options;
  other.atp.basis_storage = AtpStorage::kInt8;
  ExpectRefused(other, "atp basis storage: int8, expected cache with basis calibrated");
  other = options;
  other.atp.decomposition = AtpDecomposition::kAlternating;
  ExpectRefused(other, "atp decomposition: alternating, expected block with basis calibrated");
}

TEST(ValidateAttentionOptions, RefusesEnergyOutsideZeroToOne) {
  AttentionOptions options = Atp();
  for (double share : {0.0, -0.5, 1.5, std::nan("")}) {
    options.atp.rank = RankEnergy{share};
    EXPECT_THAT(std::string(ValidateAttentionOptions(options).message()),
                AllOf(HasSubstr("atp rank: energy:"), HasSubstr("expected a share in (0, 1]")));
  }
}

TEST(ValidateAttentionOptions, RefusesFixedRankOverTheBlock) {
  AttentionOptions options = Atp();
  options.atp.block_tokens = 128;
  options.atp.rank = RankFixed{129};
  ExpectRefused(options, "atp rank: 129, expected 1..128");
  options.atp.rank = RankFixed{0};
  ExpectRefused(options, "atp rank: 0, expected 1..128");
}

TEST(ValidateAttentionOptions, RefusesFractionsOutsideZeroToOne) {
  AttentionOptions options = Atp();
  for (double fraction : {0.0, -0.5, 1.0000001, std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    options.atp.rank = RankFraction{fraction};
    const absl::Status status = ValidateAttentionOptions(options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fraction;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("atp rank: "), HasSubstr("expected a fraction in (0, 1]")));
  }
}

TEST(ValidateAttentionOptions, RefusesEnumValuesWithoutAName) {
  AttentionOptions options = Atp();
  options.atp.basis = static_cast<AtpBasis>(9);
  ExpectRefused(options, "atp basis: 9, expected layer, kv, input or calibrated");
  options = Atp();
  options.atp.prefill = static_cast<AtpPrefill>(9);
  ExpectRefused(options, "atp prefill: 9, expected exact or compressed");
  options = Atp();
  options.atp.decomposition = static_cast<AtpDecomposition>(9);
  ExpectRefused(options, "atp decomposition: 9, expected block or alternating");
  options = Atp();
  options.atp.basis_storage = static_cast<AtpStorage>(9);
  ExpectRefused(options, "atp basis storage: 9, expected cache, int8 or int4");
  options = Atp();
  options.atp.principal_storage = AtpStorage::kInt4;
  ExpectRefused(options, "atp principal storage: int4, expected cache or int8");
  options = Atp();
  options.atp.basis_storage = AtpStorage::kRest;
  ExpectRefused(options, "atp basis storage: rest, expected cache, int8 or int4");
  options = Atp();
  options.atp.refine_tokens = 8;
  options.atp.kept_storage = AtpStorage::kRest;
  ExpectRefused(options, "atp kept storage: rest, expected cache, int8 or int4 with basis layer");
  options = Atp();
  options.atp.readout = static_cast<AtpReadout>(9);
  ExpectRefused(options, "atp readout: 9, expected exact or linear");
  options = Atp();
  options.atp.kept_storage = static_cast<AtpStorage>(-1);
  ExpectRefused(options, "atp kept storage: -1, expected cache, int8, int4 or rest");
  options = {};
  options.standard.storage = static_cast<CacheStorage>(9);
  ExpectRefused(options, "standard storage: 9, expected dtype, int8, int4, int3 or int2");
  options = Atp();
  options.mechanism = static_cast<Mechanism>(9);
  ExpectRefused(options,
                "attention mechanism: 9, expected standard, atp, taylorshift, optimised, "
                "efficient, super or lasso");
  options.mechanism = Mechanism::kTaylorShift;
  options.taylorshift.form = static_cast<TaylorForm>(9);
  ExpectRefused(options, "taylorshift form: 9, expected auto, direct or recurrent");
  options.taylorshift = {TaylorForm::kAuto, static_cast<TaylorVariant>(9)};
  ExpectRefused(options, "taylorshift variant: 9, expected normalized, plain or auto");
}

TEST(AttentionNames, ParseReadsWhatNamesWrite) {
  for (Mechanism m : {Mechanism::kStandard, Mechanism::kAtp, Mechanism::kTaylorShift}) {
    EXPECT_EQ(*ParseMechanism(MechanismName(m)), m);
  }
  for (AtpBasis b : {AtpBasis::kLayer, AtpBasis::kKv, AtpBasis::kInput}) {
    EXPECT_EQ(*ParseName<AtpBasis>(NameOf(b)), b);
  }
  for (AtpPrefill p : {AtpPrefill::kExact, AtpPrefill::kCompressed}) {
    EXPECT_EQ(*ParseName<AtpPrefill>(NameOf(p)), p);
  }
  for (TaylorForm f : {TaylorForm::kAuto, TaylorForm::kDirect, TaylorForm::kRecurrent}) {
    EXPECT_EQ(*ParseName<TaylorForm>(NameOf(f)), f);
  }
  for (TaylorVariant v :
       {TaylorVariant::kNormalized, TaylorVariant::kPlain, TaylorVariant::kAuto}) {
    EXPECT_EQ(*ParseName<TaylorVariant>(NameOf(v)), v);
  }
}

TEST(AttentionNames, CacheStorageIsReadBackAndUnknownOnesAreNamed) {
  for (CacheStorage s : {CacheStorage::kDtype, CacheStorage::kInt8, CacheStorage::kInt4,
                         CacheStorage::kInt3, CacheStorage::kInt2}) {
    EXPECT_EQ(*ParseName<CacheStorage>(NameOf(s)), s);
  }
  for (const char* name : {"", "int1", "INT8", "bf16"}) {
    EXPECT_EQ(ParseName<CacheStorage>(name).status().message(),
              std::string("unknown cache storage \"") + name +
                  "\", expected dtype, int8, int4, int3 or int2");
  }
}

TEST(AttentionNames, TheOldSpellingOfNormalizedIsReadAndNotWritten) {
  EXPECT_EQ(*ParseName<TaylorVariant>("normalised"), TaylorVariant::kNormalized);
  EXPECT_EQ(NameOf(TaylorVariant::kNormalized), "normalized");
}

TEST(PrefixStorage, IsReadBackAndOtherTextsAreRefused) {
  EXPECT_EQ(ParsePrefixStorage("exact")->centibits, 0);
  EXPECT_EQ(ParsePrefixStorage("calibrated")->centibits, 245);
  for (const auto& [text, centibits] : {std::pair("calibrated:1.5", 150),
                                        {"calibrated:8", 800},
                                        {"calibrated:2.45", 245},
                                        {"calibrated:3.05", 305}}) {
    const auto storage = ParsePrefixStorage(text);
    ASSERT_TRUE(storage.ok()) << storage.status();
    EXPECT_EQ(storage->centibits, centibits);
    EXPECT_EQ(PrefixStorageString(*storage), text);
  }
  EXPECT_EQ(PrefixStorageString({}), "exact");
  for (const char* text :
       {"", "Exact", "calibrated:", "calibrated2", "calibrated:1.49", "calibrated:8.01",
        "calibrated:2.455", "calibrated:.5", "calibrated:2.", "calibrated:-2", "calibrated:2.4x",
        "calibrated:1e1", "calibrated:99999999999", "calibrated:2.4.", "calibrated:nan"}) {
    EXPECT_EQ(ParsePrefixStorage(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(PrefixStorage, IsCheckedBesideTheCacheStorage) {
  AttentionOptions options;
  options.standard.prefix_storage.centibits = 245;
  EXPECT_TRUE(ValidateAttentionOptions(options).ok());
  EXPECT_EQ(AttentionLabel(options), "standard prefixes calibrated:2.45");
  options.standard.storage = CacheStorage::kInt8;
  EXPECT_EQ(ValidateAttentionOptions(options).message(),
            "standard prefix storage: calibrated:2.45, expected exact with cache storage int8");
  options.standard = {};
  options.standard.prefix_storage.centibits = 801;
  EXPECT_EQ(ValidateAttentionOptions(options).code(), absl::StatusCode::kInvalidArgument);
}

TEST(AttentionOptionTable, EveryRowReadsWhatItWritesAndOnlyThat) {
  for (const AttentionOption& option : AttentionOptionTable()) {
    AttentionOptions changed;
    const OptionValue value =
        option.kind == OptionKind::kName      ? OptionValue(std::string(option.names->names[1]))
        : option.kind == OptionKind::kInteger ? OptionValue(option.traits.max)
        : option.kind == OptionKind::kRank    ? OptionValue("entropy")
        : option.kind == OptionKind::kPrefixStorage ? OptionValue("calibrated:2.45")
                                                    : OptionValue(true);
    ASSERT_TRUE(option.set(value, changed).ok()) << option.name;
    EXPECT_EQ(option.get(changed), value) << option.name;
    EXPECT_NE(changed, AttentionOptions()) << option.name;
    ASSERT_TRUE(option.set(option.get(AttentionOptions()), changed).ok());
    EXPECT_EQ(changed, AttentionOptions()) << option.name;
  }
}

TEST(SetOptions, AnOptionThatAnAimSetsReplacesTheAim) {
  AttentionOptions options = Atp();
  options.atp.aim = AtpAim::kFast;
  ASSERT_TRUE(SetOptions({{"window_blocks", 2}, {"sinks", 8}}, options).ok());
  EXPECT_EQ(options.atp.aim, AtpAim::kFast);
  ASSERT_TRUE(SetOptions({{"refine_tokens", 8}}, options).ok());
  EXPECT_EQ(options.atp.aim, AtpAim::kNone);
  ASSERT_TRUE(SetOptions({{"aim", "auto"}, {"block_tokens", 512}}, options).ok());
  EXPECT_EQ(options.atp.aim, AtpAim::kNone);
}

TEST(SetOptions, AnAimIsRefusedBesideWhatItSets) {
  const AttentionOption* refused = nullptr;
  for (const AttentionOption& option : AttentionOptionTable()) {
    if (option.owner != Mechanism::kAtp || option.name == "aim") continue;
    AttentionOptions options = Atp();
    const OptionValues values = {{std::string(option.name), option.get(options)}, {"aim", "small"}};
    const bool is_rest =
        option.name == "sinks" || option.name == "window_blocks" || option.name == "prefill";
    EXPECT_EQ(SetOptions(values, options).ok(), is_rest) << option.name;
    if (option.name == "rank") refused = &option;
  }
  AttentionOptions options = Atp();
  EXPECT_EQ(SetOptions({{std::string(refused->name), "1/4"}, {"aim", "small"}}, options).message(),
            "atp rank: set beside aim small, which sets it; expected one of them");
  EXPECT_EQ(SetOptions({{"aim", "exact"}}, options).message(),
            "unknown atp aim \"exact\", expected auto, none, near-exact, small or fast");
}

std::string LabelOf(AtpAim aim, bool is_calibrated) {
  AttentionOptions options = Atp();
  options.atp.aim = aim, options.atp.window_blocks = 3;
  options.atp.prefill = AtpPrefill::kCompressed;
  options.atp = ResolveAim(options.atp, is_calibrated);
  EXPECT_EQ(options.atp.aim, AtpAim::kNone);
  EXPECT_TRUE(ValidateAttentionOptions(options).ok());
  EXPECT_EQ(ResolveAim(options.atp, is_calibrated), options.atp);
  return AttentionLabel(options);
}

TEST(ResolveAim, TakesCodesWhereTheModelHasThem) {
  EXPECT_EQ(LabelOf(AtpAim::kAuto, true),
            "atp basis calibrated block 128 window 3 refine 128 kept int4");
  EXPECT_EQ(LabelOf(AtpAim::kNearExact, true), LabelOf(AtpAim::kAuto, true));
  EXPECT_EQ(LabelOf(AtpAim::kFast, true),
            "atp basis calibrated block 128 window 3 refine 64 kept int4");
  EXPECT_EQ(LabelOf(AtpAim::kSmall, true),
            "atp basis calibrated block 64 window 3 refine 256 kept rest");
  EXPECT_EQ(LabelOf(AtpAim::kNone, true), "atp rank 0.25 basis layer block 512 window 3");
}

TEST(ResolveAim, TakesBlocksElsewhere) {
  EXPECT_EQ(LabelOf(AtpAim::kAuto, false), "atp rank 0.25 basis layer block 512 window 3");
  EXPECT_EQ(LabelOf(AtpAim::kNearExact, false),
            "atp rank 32 basis layer block 512 window 3 U int8 K'V' int8 refine 64 kept int8");
  EXPECT_EQ(LabelOf(AtpAim::kFast, false),
            "atp rank 8 basis kv block 128 window 3 U int8 K'V' int8 refine 64 kept int8");
  EXPECT_EQ(LabelOf(AtpAim::kSmall, false), "atp rank 64 basis layer block 512 window 3 U int4");
}

TEST(ResolveAim, LeavesOptionsThatSayHow) {
  AttentionOptions options = Atp();
  options.atp.refine_tokens = 16;
  AtpOptions want = options.atp;
  want.aim = AtpAim::kNone;
  EXPECT_EQ(ResolveAim(options.atp, true), want);
}

TEST(IsApproximate, StandardIsOnlyWithAQuantizedCache) {
  AttentionOptions options;
  EXPECT_FALSE(IsApproximate(options));
  options.standard.storage = CacheStorage::kInt8;
  EXPECT_TRUE(IsApproximate(options));
  options.standard = {};
  options.standard.prefix_storage.centibits = 245;
  EXPECT_TRUE(IsApproximate(options));
  options.mechanism = Mechanism::kEfficient;  // does not read it
  EXPECT_FALSE(IsApproximate(options));
  options.mechanism = Mechanism::kTaylorShift;
  EXPECT_TRUE(IsApproximate(options));
  EXPECT_TRUE(IsApproximate(Atp()));
}

TEST(AttentionNames, ParseReadsTheOtherNamesOfAtpToo) {
  for (AtpDecomposition d : {AtpDecomposition::kBlock, AtpDecomposition::kAlternating}) {
    EXPECT_EQ(*ParseName<AtpDecomposition>(NameOf(d)), d);
  }
  for (AtpStorage s :
       {AtpStorage::kCache, AtpStorage::kInt8, AtpStorage::kInt4, AtpStorage::kRest}) {
    EXPECT_EQ(*ParseName<AtpStorage>(NameOf(s)), s);
  }
  for (AtpReadout r : {AtpReadout::kExact, AtpReadout::kLinear}) {
    EXPECT_EQ(*ParseName<AtpReadout>(NameOf(r)), r);
  }
  EXPECT_EQ(ParseName<AtpReadout>("quadratic").status().message(),
            "unknown atp readout \"quadratic\", expected exact or linear");
  EXPECT_EQ(ParseName<AtpDecomposition>("svd").status().message(),
            "unknown atp decomposition \"svd\", expected block or alternating");
  EXPECT_EQ(ParseName<AtpStorage>("int5").status().message(),
            "unknown atp storage \"int5\", expected cache, int8, int4 or rest");
}

TEST(AttentionNames, UnknownNamesAreQuotedWithTheKnownOnes) {
  EXPECT_EQ(ParseMechanism("Standard").status().message(),
            "unknown attention mechanism \"Standard\", expected standard, atp, taylorshift, "
            "optimised, efficient, super or lasso");
  EXPECT_EQ(ParseName<AtpBasis>("").status().message(),
            "unknown atp basis \"\", expected layer, kv, input or calibrated");
  EXPECT_EQ(ParseName<TaylorForm>("state").status().message(),
            "unknown taylorshift form \"state\", expected auto, direct or recurrent");
  EXPECT_EQ(ParseName<TaylorVariant>("").status().message(),
            "unknown taylorshift variant \"\", expected normalized, plain or auto");
  EXPECT_EQ(ParseName<AtpPrefill>("fast").status().message(),
            "unknown atp prefill \"fast\", expected exact or compressed");
  EXPECT_EQ(ParseName<AtpPrefill>("fast").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ParseRank, WholeNumbersAreFixedRanks) {
  EXPECT_EQ(std::get<RankFixed>(*ParseRank("1")).rank, 1);
  EXPECT_EQ(std::get<RankFixed>(*ParseRank("16")).rank, 16);
  EXPECT_EQ(std::get<RankFixed>(*ParseRank("4096")).rank, 4096);
}

TEST(ParseRank, QuotientsAndDecimalsAreFractions) {
  const std::pair<const char*, double> cases[] = {{"1/4", 0.25}, {"3/8", 0.375}, {"1/1", 1.0},
                                                  {"1.0", 1.0},  {"0.25", 0.25}, {".5", 0.5}};
  for (const auto& [text, fraction] : cases) {
    const auto rank = ParseRank(text);
    ASSERT_TRUE(rank.ok()) << rank.status();
    ASSERT_TRUE(std::holds_alternative<RankFraction>(*rank)) << text;
    EXPECT_DOUBLE_EQ(std::get<RankFraction>(*rank).fraction, fraction);
  }
}

TEST(ParseRank, SharesOfEnergyAndEntropy) {
  EXPECT_EQ(std::get<RankEnergy>(*ParseRank("energy:0.95")).share, 0.95);
  EXPECT_EQ(std::get<RankEnergy>(*ParseRank("energy:1.0")).share, 1.0);
  EXPECT_TRUE(std::holds_alternative<RankEntropy>(*ParseRank("entropy")));
  for (const char* text : {"energy:", "energy:2", "energy:1.5", "energy:0.0", "energy: 0.5",
                           "energy", "entropy:1", "energy:-0.5"}) {
    EXPECT_FALSE(ParseRank(text).ok()) << text;
  }
}

TEST(ParseRank, RefusesWhatIsNeither) {
  for (const char* text : {"",      "0",     "-1",   "4097", "99999999999999",
                           "1/0",   "0/4",   "5/4",  "1/",   "/4",
                           "1/4/2", "-1/4",  "1.",   "1.5",  "0.0",
                           "1e-2",  "0.2.5", "half", " 16",  "16 ",
                           "nan",   "0x10",  ".",    "+3"}) {
    const auto rank = ParseRank(text);
    EXPECT_EQ(rank.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(rank.status().message()),
                HasSubstr(absl::StrCat("rank \"", text, "\"")));
  }
}

TEST(RankString, ReadsBackToTheSamePolicy) {
  EXPECT_EQ(RankString(RankFixed{16}), "16");
  EXPECT_EQ(RankString(RankFraction{0.25}), "0.25");
  EXPECT_EQ(RankString(RankFraction{1.0}), "1.0");
  EXPECT_EQ(RankString(RankEnergy{0.95}), "energy:0.95");
  EXPECT_EQ(RankString(RankEntropy{}), "entropy");
  for (double fraction : {1.0 / 3, 1e-9, 0.1, 1.0, std::numeric_limits<double>::min()}) {
    const auto again = ParseRank(RankString(RankFraction{fraction}));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(std::get<RankFraction>(*again).fraction, fraction);
  }
}

}  // namespace
}  // namespace lowkey
