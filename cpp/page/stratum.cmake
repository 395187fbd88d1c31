# The files of the page become arrays of bytes, so that a master needs no folder beside it.
set(_web ${CMAKE_CURRENT_SOURCE_DIR}/page/web)
set(_source "#include \"page/files.h\"\n\nnamespace jccl::page {\n")
foreach(_file "index.html=kIndexFile" "page.css=kStyleFile" "page.js=kScriptFile"
    "icon.svg=kIconFile")
  string(REPLACE "=" ";" _pair ${_file})
  list(GET _pair 0 _name)
  list(GET _pair 1 _constant)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_web}/${_name})
  file(READ ${_web}/${_name} _hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," _bytes "${_hex}")
  string(APPEND _source "static constexpr char ${_constant}Bytes[] = {${_bytes}};\n"
    "const std::string_view ${_constant}(${_constant}Bytes, sizeof(${_constant}Bytes));\n")
endforeach()
string(APPEND _source "}  // namespace jccl::page\n")
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/page_files.cc CONTENT "${_source}" @ONLY)
target_sources(jccl_page PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/page_files.cc)
