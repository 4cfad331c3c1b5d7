# lk_library(NAME SRCS ... DEPS ...)  one target per folder.
# lk_cold_folder()                    what follows in this folder computes little (LK_COLD_OPTIONS).
# lk_test(NAME [OPTIMIZED] SRCS ... DEPS ...)
#                                     one GoogleTest binary per tested source; ctest sees it as one test.
#                                     OPTIMIZED: by default without sanitizers, whatever its folder.
# lk_test_library(NAME SRCS ... DEPS ...)
#                                     what tests share, compiled as tests are.
# lk_isa_tests(NAME...)               those tests by the portable kernels, and once more for every
#                                     instruction set: NAME_ISA, which is skipped where the machine lacks it.
# lk_gpu_test(NAME [FILTER [KIND]])   that test once more, on a GPU: NAME_gpu or NAME_KIND_gpu, which is skipped where there is none.

add_library(lowkey_options INTERFACE)
target_include_directories(lowkey_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(lowkey_options INTERFACE
  -Wall -Wextra $<$<BOOL:${LOWKEY_WERROR}>:-Werror> -fno-math-errno -ffp-contract=off)
target_link_libraries(lowkey_options INTERFACE Threads::Threads)
if(LOWKEY_SANITIZE AND NOT LOWKEY_SANITIZE MATCHES "^(address|thread)$")
  message(FATAL_ERROR "LOWKEY_SANITIZE: ${LOWKEY_SANITIZE}, expected address or thread")
endif()
if(LOWKEY_SANITIZE STREQUAL "address" OR LOWKEY_FUZZ)
  target_compile_options(lowkey_options INTERFACE -fsanitize=address,undefined
                                                  -fno-sanitize-recover=undefined
                                                  -fno-omit-frame-pointer)
  target_link_options(lowkey_options INTERFACE -fsanitize=address,undefined)
  target_include_directories(lowkey_options BEFORE INTERFACE ${PROJECT_SOURCE_DIR}/cmake/sanitized)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 14)
    # With these checks a function's address is no constant, which Abseil's tables need there. The
    # use of a null pointer is a fault that AddressSanitizer reports.
    target_compile_options(lowkey_options INTERFACE
      -fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute)
  endif()
endif()
if(LOWKEY_SANITIZE STREQUAL "thread")
  # Debian's libraries are compiled without: protobuf's headers would lay out maps otherwise than it
  # does if they knew. libstdc++'s headers are all there is of it, and do. GCC
  # refuses Asio's fences, which repeat what its locks do.
  target_compile_options(lowkey_options INTERFACE -fsanitize=thread -fno-omit-frame-pointer
                                                  -U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1
                                                  -DBOOST_ASIO_DISABLE_FENCED_BLOCK)
  target_link_options(lowkey_options INTERFACE -fsanitize=thread -Wl,-u,lowkey_tsan_libraries)
  add_library(lowkey_tsan_libraries STATIC tests/testing/tsan_libraries.cc)
  target_compile_options(lowkey_tsan_libraries PRIVATE -fsanitize=thread)
  target_link_libraries(lowkey_options INTERFACE lowkey_tsan_libraries ${CMAKE_DL_LIBS})
endif()
if(LOWKEY_FUZZ)
  target_compile_options(lowkey_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# These flags make it harder to exploit a bug in an optimized build; docs/speed.md has their cost.
# Sanitizers check more than these do, and some of these hide memory from them.
if(NOT LOWKEY_SANITIZE AND NOT LOWKEY_FUZZ)
  set(hardening -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
                -D_GLIBCXX_ASSERTIONS)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|i.86")
    list(APPEND hardening -fcf-protection)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(APPEND hardening -mbranch-protection=standard)
  endif()
  set(optimized $<CONFIG:Release,RelWithDebInfo,MinSizeRel>)
  target_compile_options(lowkey_options INTERFACE "$<${optimized}:${hardening}>")
  target_link_options(lowkey_options INTERFACE "$<${optimized}:-Wl,-z,relro,-z,now>")
endif()

# A test's own code need not be fast: what it tests is compiled as it is served. With
# AddressSanitizer optimizing it would take as long again as compiling it, and neither it nor what
# only parses, converts and hands on (lk_cold_folder) is optimized.
set(LK_TEST_OPTIONS -O1)
set(LK_COLD_OPTIONS)
add_library(lowkey_few_checks INTERFACE)
target_link_libraries(lowkey_few_checks INTERFACE lowkey_options)
if(LOWKEY_SANITIZE STREQUAL "address" AND NOT LOWKEY_FUZZ)
  set(LK_TEST_OPTIONS -O0)
  set(LK_COLD_OPTIONS -O0)
  # For tests' own code: a check of every pointer doubles the time to compile it, and
  # AddressSanitizer sees its pointers too.
  target_compile_options(lowkey_few_checks INTERFACE -fno-sanitize=null,vptr,alignment)
endif()

if(BUILD_SHARED_LIBS)
  # CMake would say -fPIE for programs, which does not fit the precompiled header of libraries.
  list(APPEND LK_TEST_OPTIONS -fPIC)
endif()

# What nearly every source includes: compiled once, in lowkey_base, once more with GoogleTest, in
# lowkey_test_base, and once more in lowkey_loader where its options are others. (Each source still
# includes what it uses.)
set(LK_PRECOMPILED lowkey_base)
set(LK_COMMON_HEADERS
    <algorithm> <functional> <memory> <optional> <string> <vector> <absl/status/statusor.h>
    <absl/strings/str_cat.h> <absl/types/span.h>)

macro(lk_cold_folder)
  if(LK_COLD_OPTIONS)
    add_compile_options(${LK_COLD_OPTIONS})
    set(LK_PRECOMPILED lowkey_loader)
  endif()
endmacro()

function(lk_library NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(${NAME} ${ARG_SRCS})
  # A macro that only one library has would part it from the precompiled header.
  set_target_properties(${NAME} PROPERTIES UNITY_BUILD ${LOWKEY_UNITY} DEFINE_SYMBOL "")
  if(LOWKEY_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # A class of one source may hold types of that source's anonymous namespace.
    target_compile_options(${NAME} PRIVATE -Wno-subobject-linkage)
  endif()
  target_link_libraries(${NAME} PUBLIC lowkey_options ${ARG_DEPS})
  if(NAME STREQUAL LK_PRECOMPILED)
    target_precompile_headers(${NAME} PRIVATE ${LK_COMMON_HEADERS})
  else()
    target_precompile_headers(${NAME} REUSE_FROM ${LK_PRECOMPILED})
  endif()
endfunction()

# Tests of these folders run under AddressSanitizer by default, and optimized by name alone (label
# `sanitized`): they read strangers' bytes, convert numbers or have threads.
set(LK_ASAN_FOLDERS client engine/base engine/loader engine/sampler engine/scheduler fuzz server
                    tokenizer)

# This target is what is built by default without sanitizers: the programs and the tests of all other
# folders.
add_custom_target(release_tests)

# Marks tests that AddressSanitizer sees by default.
function(lk_asan_tests)
  if(NOT TARGET asan_tests)
    add_custom_target(asan_tests)
  endif()
  add_dependencies(asan_tests ${ARGN})
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS asan)
endfunction()

# Another processor's emulator is twenty to fifty times as slow.
set(LK_TEST_SECONDS 600)
if(CMAKE_CROSSCOMPILING)
  set(LK_TEST_SECONDS 5400)
endif()

set(LK_ISAS avx2 avx512 avx512_vnni avx512_bf16 amx)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(LK_ISAS neon neon_dot neon_bf16)
endif()

# The kernels in use are chosen once a process. Sanitizers and an emulated processor see the best ones
# alone.
function(lk_isa_tests)
  if(LOWKEY_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  foreach(name IN LISTS ARGN)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT LOWKEY_ISA=portable)
    foreach(isa IN LISTS LK_ISAS)
      add_test(NAME ${name}_${isa} COMMAND ${name})
      set_tests_properties(${name}_${isa} PROPERTIES TIMEOUT ${LK_TEST_SECONDS}
        ENVIRONMENT LOWKEY_ISA=${isa} SKIP_REGULAR_EXPRESSION "LOWKEY_ISA: .*this CPU has")
    endforeach()
  endforeach()
endfunction()

function(lk_test_library NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(${NAME} STATIC ${ARG_SRCS})
  target_link_libraries(${NAME} PUBLIC ${ARG_DEPS} lowkey_test_base)
  target_compile_options(${NAME} PRIVATE ${LK_TEST_OPTIONS})
  target_precompile_headers(${NAME} REUSE_FROM lowkey_test_base)
endfunction()

function(lk_test NAME)
  cmake_parse_arguments(ARG "OPTIMIZED" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE ${ARG_DEPS} lowkey_test_base GTest::gtest_main)
  target_compile_options(${NAME} PRIVATE ${LK_TEST_OPTIONS})
  target_precompile_headers(${NAME} REUSE_FROM lowkey_test_base)
  add_test(NAME ${NAME} COMMAND ${NAME})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT ${LK_TEST_SECONDS})
  list(JOIN LK_ASAN_FOLDERS "|" folders)
  if(NOT ARG_OPTIMIZED AND
     CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/tests/(${folders})(/|$)")
    lk_asan_tests(${NAME})
    set_property(TEST ${NAME} APPEND PROPERTY LABELS sanitized)
  else()
    add_dependencies(release_tests ${NAME})
  endif()
  # An emulated processor runs every eighth case of what computes much, and the first one in any case:
  # all of them take it hours.
  if(CMAKE_CROSSCOMPILING AND CMAKE_CURRENT_SOURCE_DIR MATCHES
     "^${PROJECT_SOURCE_DIR}/tests/engine/(attention|kernels|lowrank|model|runtime|scheduler)(/|$)")
    set_tests_properties(${NAME} PROPERTIES
      ENVIRONMENT "GTEST_TOTAL_SHARDS=8;GTEST_SHARD_INDEX=0")
  endif()
  if(LOWKEY_SANITIZE STREQUAL "thread")
    set_tests_properties(${NAME} PROPERTIES
      ENVIRONMENT "TSAN_OPTIONS=ignore_noninstrumented_modules=1 suppressions=${PROJECT_SOURCE_DIR}/tests/tsan.supp")
  elseif(LOWKEY_SANITIZE STREQUAL "address")
    set_tests_properties(${NAME} PROPERTIES
      ENVIRONMENT "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/lsan.supp:print_suppressions=0")
  endif()
endfunction()

# Of a binary that asks for tests/testing/test_device.h's device.
function(lk_gpu_test NAME)
  set(environment LOWKEY_TEST_DEVICE=cuda:0)
  if(LOWKEY_CUDA_FOUND)
    list(APPEND environment LOWKEY_CUDA_LIBRARY=$<TARGET_FILE:lowkey_cuda>)
    add_dependencies(${NAME} lowkey_cuda)
  endif()
  if(NOT TARGET gpu_tests)
    add_custom_target(gpu_tests)  # all that tests/gpu/run.sh needs
  endif()
  add_dependencies(gpu_tests ${NAME})
  add_dependencies(release_tests ${NAME})
  set(gpu_name ${NAME}_gpu)
  set(filter)
  if(ARGC GREATER 1)
    set(filter --gtest_filter=${ARGV1})
  endif()
  if(ARGC GREATER 2)
    set(gpu_name ${NAME}_${ARGV2}_gpu)
  endif()
  add_test(NAME ${gpu_name} COMMAND ${NAME} ${filter})
  set_tests_properties(${gpu_name} PROPERTIES LABELS gpu TIMEOUT ${LK_TEST_SECONDS} RUN_SERIAL ON
    ENVIRONMENT "${environment}" SKIP_REGULAR_EXPRESSION "no CUDA device")
endfunction()

# The emulated grid is slow: by default it runs every third case of the test TEST, and all by `ctest -C
# devices`, as TEST_whole. COMMAND is the test's.
function(lk_sampled_test TEST COMMAND)
  if(LOWKEY_SANITIZE OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  add_test(NAME ${TEST}_whole COMMAND ${COMMAND} ${ARGN} CONFIGURATIONS devices)
  get_test_property(${TEST} ENVIRONMENT environment)
  if(environment)
    set_tests_properties(${TEST}_whole PROPERTIES ENVIRONMENT "${environment}")
  endif()
  set_tests_properties(${TEST}_whole PROPERTIES TIMEOUT ${LK_TEST_SECONDS})
  set_property(TEST ${TEST} APPEND PROPERTY
    ENVIRONMENT "GTEST_TOTAL_SHARDS=3;GTEST_SHARD_INDEX=0")
endfunction()

# Runs what FILTER takes of such a binary again, on the emulated grid and on a GPU. KIND tells several
# of one binary apart. WHOLE: only `ctest -C devices` runs it on the emulated grid; SAMPLED: see
# lk_sampled_test.
function(lk_device_test NAME FILTER)
  cmake_parse_arguments(ARG "WHOLE;SAMPLED" "" "" ${ARGN})
  set(device_name ${NAME}_on_device)
  if(ARG_UNPARSED_ARGUMENTS)
    set(device_name ${NAME}_${ARG_UNPARSED_ARGUMENTS}_on_device)
  endif()
  set(configurations)
  if(ARG_WHOLE)
    set(configurations CONFIGURATIONS devices)
  endif()
  add_test(NAME ${device_name} COMMAND ${NAME} --gtest_filter=${FILTER} ${configurations})
  set_tests_properties(${device_name} PROPERTIES
    ENVIRONMENT "LOWKEY_TEST_DEVICE=emulated" TIMEOUT ${LK_TEST_SECONDS})
  if(ARG_SAMPLED)
    lk_sampled_test(${device_name} ${NAME} --gtest_filter=${FILTER})
  endif()
  lk_gpu_test(${NAME} ${FILTER} ${ARG_UNPARSED_ARGUMENTS})
endfunction()
