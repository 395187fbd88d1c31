# Finds what the transport builds on and, when something is missing, says what to install.
if(JCCL_STATIC)  # jccl-master alone: it needs no library where it runs
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  set(OPENSSL_USE_STATIC_LIBS TRUE)
endif()
find_package(Threads REQUIRED)
find_package(OpenSSL 3.0)
if(NOT OpenSSL_FOUND AND NOT OPENSSL_FOUND)
  message(FATAL_ERROR "jccl: OpenSSL >= 3.0 headers not found. Install them "
    "(Debian/Ubuntu: apt-get install libssl-dev) and build again.")
endif()
find_package(SQLite3)
if(NOT SQLite3_FOUND)
  message(FATAL_ERROR "jccl: SQLite headers not found. Install them "
    "(Debian/Ubuntu: apt-get install libsqlite3-dev) and build again.")
endif()

find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(NOT EXISTS "${XXHASH_INCLUDE_DIR}/xxhash.h")
  message(FATAL_ERROR "jccl: xxhash.h (>= 0.8.1) not found. Install it "
    "(Debian/Ubuntu: apt-get install libxxhash-dev) and build again.")
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
  message(FATAL_ERROR "jccl: Boost >= 1.90 headers not found. Install the header wheel "
    "(pip install 'cmeel-boost>=1.90,<2') or pass -DBoost_INCLUDE_DIR=<folder that holds boost/>.")
endif()
set(Boost_INCLUDE_DIR ${Boost_INCLUDE_DIR} CACHE PATH "Folder that holds boost/" FORCE)
add_library(jccl_boost INTERFACE)
target_include_directories(jccl_boost SYSTEM INTERFACE ${Boost_INCLUDE_DIR})
target_compile_definitions(jccl_boost INTERFACE BOOST_ASIO_SEPARATE_COMPILATION
  BOOST_ASIO_NO_DEPRECATED BOOST_ALLOW_DEPRECATED_HEADERS)
