# SPDX-License-Identifier: Apache-2.0
# Targets of the library and the functions that its folders use.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq>=4.3)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)

# Compile options of all our C code.
add_library(psrt_options INTERFACE)
target_compile_definitions(psrt_options INTERFACE _GNU_SOURCE)
# No contraction: results must not depend on the instruction set (docs/consistency.md).
target_compile_options(psrt_options INTERFACE -Wall -Wextra -Wshadow -Wstrict-prototypes
  -Wmissing-prototypes -Wundef -Wpointer-arith -ffp-contract=off -fno-math-errno)
target_include_directories(psrt_options INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include
  ${PROJECT_BINARY_DIR})
set(PSRT_TEST_TIMEOUT 300)
set(san "")
if(PSRT_SANITIZE STREQUAL "address")
  set(san -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(PSRT_SANITIZE STREQUAL "thread")
  set(san -fsanitize=thread -fno-omit-frame-pointer)
elseif(PSRT_SANITIZE STREQUAL "fuzzer")
  set(san -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
elseif(PSRT_SANITIZE)
  message(FATAL_ERROR
    "PSRT_SANITIZE is \"${PSRT_SANITIZE}\", not empty, address, thread or fuzzer")
endif()
if(san)
  set(PSRT_TEST_TIMEOUT 900)
  target_compile_options(psrt_options INTERFACE ${san})
  target_link_options(psrt_options INTERFACE ${san})
  # Default options and suppressions are compiled in, so that they hold however a program is started.
  target_sources(psrt_options INTERFACE
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:${PROJECT_SOURCE_DIR}/tests/support/sanitizer.c>)
endif()

# One object library a folder: psrt_part(base a.c b.c) makes psrt_obj_base.
function(psrt_part name)
  add_library(psrt_obj_${name} OBJECT ${ARGN})
  target_link_libraries(psrt_obj_${name} PUBLIC psrt_options PkgConfig::ZMQ PkgConfig::SODIUM
    PkgConfig::PROTOBUF_C PkgConfig::HWLOC Threads::Threads)
  set_property(GLOBAL APPEND PROPERTY PSRT_PARTS psrt_obj_${name})
endfunction()

# libpsrt.so (only the symbols of libpsrt.map), and psrt_testing: the same objects with all symbols,
# for tests of internals. psrt_base is what the launcher shares with the library.
function(psrt_add_library)
  get_property(parts GLOBAL PROPERTY PSRT_PARTS)
  add_library(psrt SHARED)
  add_library(psrt::psrt ALIAS psrt)
  add_library(psrt_testing STATIC)
  add_library(psrt_base STATIC)
  foreach(part ${parts})
    target_sources(psrt PRIVATE $<TARGET_OBJECTS:${part}>)
    target_sources(psrt_testing PRIVATE $<TARGET_OBJECTS:${part}>)
  endforeach()
  target_sources(psrt_base PRIVATE $<TARGET_OBJECTS:psrt_obj_base>)
  target_compile_options(psrt_obj_base PRIVATE -ffunction-sections -fdata-sections)
  set(libs PkgConfig::ZMQ PkgConfig::SODIUM PkgConfig::PROTOBUF_C PkgConfig::HWLOC Threads::Threads m)
  target_link_libraries(psrt PRIVATE psrt_options ${libs})
  target_link_libraries(psrt_testing PUBLIC psrt_options ${libs})
  target_link_libraries(psrt_base PUBLIC psrt_options PkgConfig::SODIUM PkgConfig::HWLOC Threads::Threads m)
  target_include_directories(psrt INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set(map ${PROJECT_SOURCE_DIR}/libpsrt.map)
  target_link_options(psrt PRIVATE -Wl,--version-script=${map} -Wl,--no-undefined)
  set_target_properties(psrt PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 LINK_DEPENDS ${map})
  set_target_properties(psrt_testing psrt_base psrt PROPERTIES LINKER_LANGUAGE C)
endfunction()

# A program that uses the public API only.
function(psrt_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE psrt psrt_options m)
endfunction()

# A test of internals: psrt_test(base/test_spec base/test_spec.c) -> ctest "base/test_spec".
# The time limit is generous: it shows that nothing hangs. One case at a time (-j1): ctest runs programs in
# parallel, and cases of one program may share what they test.
function(psrt_test name)
  string(REPLACE "/" "_" target ${name})
  add_executable(${target} ${ARGN})
  target_link_libraries(${target} PRIVATE psrt_testing psrt_test_runner)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/bin)
  add_test(NAME ${name} COMMAND ${target} -j1)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${PSRT_TEST_TIMEOUT})
endfunction()
