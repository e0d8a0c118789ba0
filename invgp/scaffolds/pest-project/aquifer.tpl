ptf #
transmissivity (m2/d)  #t                     #
storativity (1)        #stor                  #
rate (m3/d)            #rate                  #
radius (m)             #radius                #
