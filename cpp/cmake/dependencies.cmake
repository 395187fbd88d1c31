# Finds what the transport builds on and, when something is missing, says what to install (missing.cmake).
if(JCCL_STATIC)  # jccl-master alone: it needs no library where it runs
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS TRUE)
endif()
find_package(Threads REQUIRED)
find_package(OpenSSL 3.0)
if(NOT OpenSSL_FOUND AND NOT OPENSSL_FOUND)
  jccl_missing_openssl()
endif()
find_package(SQLite3)
if(NOT SQLite3_FOUND)
  jccl_missing_sqlite()
endif()

find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(NOT EXISTS "${XXHASH_INCLUDE_DIR}/xxhash.h")
  jccl_missing_xxhash()
endif()

# Boost >= 1.90, headers only: a system copy, else the build-time wheel `cmeel-boost`.
if(NOT Boost_INCLUDE_DIR)
  find_package(Boost 1.90 QUIET CONFIG)
  if(Boost_FOUND)
    get_target_property(Boost_INCLUDE_DIR Boost::headers INTERFACE_INCLUDE_DIRECTORIES)
  else()
    find_package(Python3 COMPONENTS Interpreter)
    set(_python ${Python3_EXECUTABLE})
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/../.venv/bin/python)
      set(_python ${CMAKE_CURRENT_SOURCE_DIR}/../.venv/bin/python)
    endif()
    if(DEFINED PYTHON_EXECUTABLE)
      set(_python ${PYTHON_EXECUTABLE})
    endif()
    if(_python)
      execute_process(
        COMMAND ${_python} -c "import importlib.metadata as m
print(m.distribution('cmeel-boost').locate_file('cmeel.prefix/include'))"
        OUTPUT_VARIABLE Boost_INCLUDE_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
  endif()
endif()
if(NOT EXISTS "${Boost_INCLUDE_DIR}/boost/asio.hpp")
  jccl_missing_otherwise("headers of Boost 1.90 or newer: pip install 'cmeel-boost>=1.90,<2', or \
-DBoost_INCLUDE_DIR=<folder that holds boost/>")
endif()
jccl_stop_if_missing()
set(Boost_INCLUDE_DIR ${Boost_INCLUDE_DIR} CACHE PATH "Folder that holds boost/" FORCE)
add_library(jccl_boost INTERFACE)
target_include_directories(jccl_boost SYSTEM INTERFACE ${Boost_INCLUDE_DIR})
target_compile_definitions(jccl_boost INTERFACE BOOST_ASIO_SEPARATE_COMPILATION
  BOOST_ASIO_NO_DEPRECATED BOOST_ALLOW_DEPRECATED_HEADERS)
