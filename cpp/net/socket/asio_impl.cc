// The one translation unit that holds Asio's out-of-line code.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
