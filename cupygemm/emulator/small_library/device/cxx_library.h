// No C++ header is implicit here. Programs that rely on some are compiled with the full library.
#pragma once
