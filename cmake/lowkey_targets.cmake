# lk_library(NAME SRCS ... DEPS ...)  one target per folder.
# lk_test(NAME SRCS ... DEPS ...)     one GoogleTest binary per tested source; ctest sees it as one test.

add_library(lowkey_options INTERFACE)
target_include_directories(lowkey_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(lowkey_options INTERFACE -Wall -Wextra -Werror -fno-math-errno
                                                -ffp-contract=off)
target_link_libraries(lowkey_options INTERFACE Threads::Threads)
if(LOWKEY_SANITIZE)
  target_compile_options(lowkey_options INTERFACE -fsanitize=address,undefined
                                                  -fno-sanitize-recover=undefined
                                                  -fno-omit-frame-pointer)
  target_link_options(lowkey_options INTERFACE -fsanitize=address,undefined)
endif()

function(lk_library NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(${NAME} STATIC ${ARG_SRCS})
  target_link_libraries(${NAME} PUBLIC lowkey_options ${ARG_DEPS})
endfunction()

function(lk_test NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${NAME} ${ARG_SRCS})
  target_link_libraries(${NAME} PRIVATE lowkey_options ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${NAME} PRIVATE LOWKEY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${NAME} COMMAND ${NAME})
  set_tests_properties(${NAME} PROPERTIES TIMEOUT 600)
endfunction()
